#include <tandem/kernels/optimizer.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

constexpr std::int64_t kCounts[] = {0, 1, 7, 1000, 4099, 70001};

// Calls body.operator()<T>(count, offset of the first array) for all types, several lengths, and pointers that are not
// aligned.
template <class Body>
void for_arrays(Body&& body) {
  test::for_floating_types([&]<class T>() {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        SCOPED_TRACE(fmt::format("{}, {} elements, offset {}", dtype_of<T>, count, offset));
        body.template operator()<T>(count, offset);
      }
    }
  });
}

template <class T>
std::vector<T> gradient(Rng& rng, std::int64_t count) {
  auto values = values_between<T>(rng, count);
  for (std::size_t i = 0; i < values.size(); i += 5) {
    values[i] = T(0);  // zeros in between
  }
  return values;
}

TEST(CudaOptimizer, SgdStepsAsTheCpuDoes) {
  TANDEM_NEEDS_GPU();
  Rng rng(1);
  for_arrays([&]<class T>(std::int64_t count, std::size_t offset) {
    for (const bool momentum : {false, true}) {
      for (const std::int64_t step : {1, 4}) {
        for (const bool maximize : {false, true}) {
          Both<T> param(values_between<T>(rng, count), offset);
          Both<T> grad(gradient<T>(rng, count));
          Both<T> buffer(values_between<T>(rng, count));
          const StepState state{.learning_rate = 0.1, .step = step, .momentum = 0.9, .weight_decay = 0.01};
          Sgd kernel{.dtype = dtype_of<T>,
                     .count = count,
                     .param = param.host(),
                     .grad = grad.host(),
                     .momentum_buffer = momentum ? buffer.host() : nullptr,
                     .state = &state,
                     .dampening = maximize ? 0.25 : 0,
                     .nesterov = !maximize,
                     .maximize = maximize};
          launch(test::cpu(), kernel);
          kernel.param = param.device();
          kernel.grad = grad.device();
          kernel.momentum_buffer = momentum ? buffer.device() : nullptr;
          launch(test::gpu(), kernel);
          ASSERT_LE(param.distance(), test::rounding<T>());
          ASSERT_LE(buffer.distance(), test::rounding<T>());
        }
      }
    }
  });
}

TEST(CudaOptimizer, AdamStepsAsTheCpuDoes) {
  TANDEM_NEEDS_GPU();
  Rng rng(2);
  for_arrays([&]<class T>(std::int64_t count, std::size_t offset) {
    for (const bool largest : {false, true}) {
      for (const bool decoupled : {false, true}) {
        Both<T> param(values_between<T>(rng, count));
        Both<T> grad(gradient<T>(rng, count), offset);
        Both<T> m(values_between<T>(rng, count));
        Both<T> v(values_between<T>(rng, count, 0.1, 1));
        Both<T> most(values_between<T>(rng, count, 0.1, 1));
        const StepState state{.learning_rate = 0.01, .step = 3, .momentum = 0.9, .weight_decay = 0.01};
        Adam kernel{.dtype = dtype_of<T>,
                    .count = count,
                    .param = param.host(),
                    .grad = grad.host(),
                    .exp_avg = m.host(),
                    .exp_avg_sq = v.host(),
                    .state = &state,
                    .beta2 = 0.999,
                    .eps = 1e-8,
                    .decoupled = decoupled,
                    .max_exp_avg_sq = largest ? most.host() : nullptr,
                    .maximize = decoupled};
        launch(test::cpu(), kernel);
        kernel.param = param.device();
        kernel.grad = grad.device();
        kernel.exp_avg = m.device();
        kernel.exp_avg_sq = v.device();
        kernel.max_exp_avg_sq = largest ? most.device() : nullptr;
        launch(test::gpu(), kernel);
        ASSERT_LE(param.distance(), test::rounding<T>());
        ASSERT_LE(m.distance(), test::rounding<T>());
        ASSERT_LE(v.distance(), test::rounding<T>());
        ASSERT_LE(most.distance(), test::rounding<T>());
      }
    }
  });
}

TEST(CudaOptimizer, AnInfiniteParameterStaysWithoutWeightDecay) {
  TANDEM_NEEDS_GPU();
  const auto expect = []<class Kernel>(Kernel kernel, const char* name) {
    const StepState state{.learning_rate = 0.1, .step = 2, .momentum = 0.9, .weight_decay = 0};
    const float inf = std::numeric_limits<float>::infinity();
    Both<float> param(std::vector<float>{inf, -inf, 1, inf, 2});
    Both<float> grad(std::vector<float>(5, 0.5F));
    Both<float> first(grad.values()), second(grad.values());
    const auto run = [&](Context& context, const auto& memory) {
      kernel.dtype = DType::f32;
      kernel.count = 5;
      kernel.param = memory(param);
      kernel.grad = memory(grad);
      kernel.state = &state;
      if constexpr (std::is_same_v<Kernel, Sgd>) {
        kernel.momentum_buffer = memory(first);
      } else if constexpr (std::is_same_v<Kernel, Adam>) {
        kernel.exp_avg = memory(first);
        kernel.exp_avg_sq = memory(second);
      } else if constexpr (std::is_same_v<Kernel, RmsProp>) {
        kernel.square_avg = memory(first);
        kernel.momentum_buffer = memory(second);
      } else {
        kernel.sum = memory(first);
      }
      launch(context, kernel);
    };
    run(test::cpu(), [](auto& array) { return array.host(); });
    run(test::gpu(), [](auto& array) { return array.device(); });
    const std::vector<float> got = param.download();
    EXPECT_TRUE(got[0] == inf && got[1] == -inf && got[3] == inf) << name;
    EXPECT_LE(param.distance(), test::rounding<float>()) << name;
    EXPECT_LE(first.distance(), test::rounding<float>()) << name;
  };
  expect(Sgd{}, "plain");
  expect(Sgd{.nesterov = true}, "nesterov");
  expect(Adam{.beta2 = 0.999, .eps = 1e-8}, "adam");
  expect(Adam{.beta2 = 0.999, .eps = 1e-8, .decoupled = true}, "adamw");
  expect(RmsProp{.alpha = 0.9, .eps = 1e-8}, "rmsprop");
  expect(Adagrad{.eps = 1e-8}, "adagrad");
}

TEST(CudaOptimizer, AdamLeavesGapsAlone) {
  TANDEM_NEEDS_GPU();
  Both<float> zeros(std::vector<float>(100, 0.F));
  Both<float> grad(std::vector<float>(100, 0.F));
  Both<float> m(std::vector<float>(100, 0.F));
  Both<float> v(std::vector<float>(100, 0.F));
  const StepState state{.learning_rate = 0.01, .step = 1, .momentum = 0.9, .weight_decay = 0};
  launch(test::gpu(), Adam{.dtype = DType::f32,
                           .count = 100,
                           .param = zeros.device(),
                           .grad = grad.device(),
                           .exp_avg = m.device(),
                           .exp_avg_sq = v.device(),
                           .state = &state,
                           .beta2 = 0.999,
                           .eps = 0,
                           .decoupled = false});
  EXPECT_EQ(zeros.distance(), 0);
}

TEST(CudaOptimizer, RmsPropStepsAsTheCpuDoes) {
  TANDEM_NEEDS_GPU();
  Rng rng(3);
  for_arrays([&]<class T>(std::int64_t count, std::size_t offset) {
    for (const bool centered : {false, true}) {
      for (const bool momentum : {false, true}) {
        Both<T> param(values_between<T>(rng, count));
        Both<T> grad(gradient<T>(rng, count));
        Both<T> square(values_between<T>(rng, count, 0.5, 1), offset);
        Both<T> mean(values_between<T>(rng, count, -0.1, 0.1));
        Both<T> buffer(values_between<T>(rng, count));
        const StepState state{.learning_rate = 0.01, .step = 3, .momentum = 0.9, .weight_decay = 0.01};
        RmsProp kernel{.dtype = dtype_of<T>,
                       .count = count,
                       .param = param.host(),
                       .grad = grad.host(),
                       .square_avg = square.host(),
                       .grad_avg = centered ? mean.host() : nullptr,
                       .momentum_buffer = momentum ? buffer.host() : nullptr,
                       .state = &state,
                       .alpha = 0.99,
                       .eps = 1e-8,
                       .maximize = momentum};
        launch(test::cpu(), kernel);
        kernel.param = param.device();
        kernel.grad = grad.device();
        kernel.square_avg = square.device();
        kernel.grad_avg = centered ? mean.device() : nullptr;
        kernel.momentum_buffer = momentum ? buffer.device() : nullptr;
        launch(test::gpu(), kernel);
        ASSERT_LE(param.distance(), test::rounding<T>());
        ASSERT_LE(square.distance(), test::rounding<T>());
        ASSERT_LE(mean.distance(), test::rounding<T>());
        ASSERT_LE(buffer.distance(), test::rounding<T>());
      }
    }
  });
}

TEST(CudaOptimizer, AdagradAndMovingAverageAgreeWithTheCpu) {
  TANDEM_NEEDS_GPU();
  Rng rng(4);
  for_arrays([&]<class T>(std::int64_t count, std::size_t offset) {
    Both<T> param(values_between<T>(rng, count), offset);
    Both<T> grad(gradient<T>(rng, count), offset);
    Both<T> sum(values_between<T>(rng, count, 0, 1), offset);
    const StepState state{.learning_rate = 0.1, .step = 5, .weight_decay = 0.01};
    Adagrad kernel{.dtype = dtype_of<T>,
                   .count = count,
                   .param = param.host(),
                   .grad = grad.host(),
                   .sum = sum.host(),
                   .state = &state,
                   .lr_decay = 0.1,
                   .eps = 1e-10,
                   .maximize = offset == 1};
    launch(test::cpu(), kernel);
    kernel.param = param.device();
    kernel.grad = grad.device();
    kernel.sum = sum.device();
    launch(test::gpu(), kernel);
    ASSERT_LE(param.distance(), test::rounding<T>());
    ASSERT_LE(sum.distance(), test::rounding<T>());

    MovingAverage average{
        .dtype = dtype_of<T>, .count = count, .average = sum.host(), .values = param.host(), .decay = 0.75};
    launch(test::cpu(), average);
    average.average = sum.device();
    average.values = param.device();
    launch(test::gpu(), average);
    ASSERT_LE(sum.distance(), 2 * test::rounding<T>());
  });
}

}  // namespace
}  // namespace tandem::kernels
