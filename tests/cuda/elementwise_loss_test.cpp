#include <limits>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/kernels/elementwise_loss.h>

#include "cuda/both.h"

namespace tandem::kernels {
namespace {

using test::Both;
using test::Rng;
using test::values_between;

constexpr std::int64_t kCounts[] = {0, 1, 5, 1000, 8195, 100003};
constexpr LossOp kOps[] = {LossOp::squared, LossOp::absolute, LossOp::smooth_l1,
                           LossOp::huber,   LossOp::binary,   LossOp::binary_logits};

// The arrays of a test of one op, type and length.
template <class T>
struct Arrays {
  Arrays(Rng& rng, LossOp op, std::int64_t count, std::size_t offset)
      : input(values_between<T>(rng, count, op == LossOp::binary ? 0.01 : -3, op == LossOp::binary ? 0.99 : 3), offset),
        target(values_between<T>(rng, count, 0, 1)),
        weight(values_between<T>(rng, count, 0, 2)),
        pos_weight(values_between<T>(rng, count, 0, 2)) {}
  Both<T> input, target, weight, pos_weight;
};

template <class Body>
void for_cases(Body&& body) {
  Rng rng(11);
  for (const LossOp op : kOps) {
    test::for_floating_types([&]<class T>() {
      for (const std::int64_t count : kCounts) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
          if (count > 10000 && (offset != 0 || sizeof(T) == 8)) continue;
          for (const bool weights : {false, true}) {
            if (weights && (op < LossOp::binary || count > 10000)) continue;
            SCOPED_TRACE(
                fmt::format("op {}, {}, {} elements, offset {}", static_cast<int>(op), dtype_of<T>, count, offset));
            Arrays<T> arrays(rng, op, count, offset);
            body(rng, op, arrays, count, weights);
          }
        }
      }
    });
  }
}

TEST(CudaElementwiseLoss, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for_cases([]<class T>(Rng&, LossOp op, Arrays<T>& a, std::int64_t count, bool weights) {
    for (const bool each : {false, true}) {
      for (const bool gradient : {false, true}) {
        if (gradient && (each || !std::is_same_v<T, float>)) continue;
        Both<T> loss(std::vector<T>(static_cast<std::size_t>(each ? count : 1), T(7)));
        Both<T> input_grad(std::vector<T>(static_cast<std::size_t>(count), T(7)));
        ElementwiseLoss kernel{
            .op = op,
            .dtype = dtype_of<T>,
            .loss_per_element = each,
            .scale = count == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / static_cast<double>(count),
            .threshold = 0.5,
            .count = count,
            .input = a.input.host(),
            .target = a.target.host(),
            .weight = weights ? a.weight.host() : nullptr,
            .pos_weight = weights ? a.pos_weight.host() : nullptr,
            .loss = loss.host(),
            .input_grad = gradient ? input_grad.host() : nullptr};
        launch(test::cpu(), kernel);
        kernel.input = a.input.device();
        kernel.target = a.target.device();
        kernel.weight = weights ? a.weight.device() : nullptr;
        kernel.pos_weight = weights ? a.pos_weight.device() : nullptr;
        kernel.loss = loss.device();
        kernel.input_grad = gradient ? input_grad.device() : nullptr;
        launch(test::gpu(), kernel);
        ASSERT_LE(loss.distance(), test::rounding<T>());
        ASSERT_LE(input_grad.distance(), test::rounding<T>());
      }
    }
  });
}

TEST(CudaElementwiseLoss, GradientsAgreeWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for_cases([]<class T>(Rng& rng, LossOp op, Arrays<T>& a, std::int64_t count, bool weights) {
    for (const bool each : {false, true}) {
      for (const bool of_target : {false, true}) {
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          Both<T> grad(values_between<T>(rng, each ? count : 1));
          Both<T> result(values_between<T>(rng, count));
          ElementwiseLossGrad kernel{.op = op,
                                     .dtype = dtype_of<T>,
                                     .loss_per_element = each,
                                     .of_target = of_target,
                                     .accumulate = accumulate,
                                     .scale = 0.3,
                                     .threshold = 0.5,
                                     .count = count,
                                     .input = a.input.host(),
                                     .target = a.target.host(),
                                     .weight = weights ? a.weight.host() : nullptr,
                                     .pos_weight = weights ? a.pos_weight.host() : nullptr,
                                     .grad = grad.host(),
                                     .result = result.host()};
          launch(test::cpu(), kernel);
          kernel.input = a.input.device();
          kernel.target = a.target.device();
          kernel.weight = weights ? a.weight.device() : nullptr;
          kernel.pos_weight = weights ? a.pos_weight.device() : nullptr;
          kernel.grad = grad.device();
          kernel.result = result.device();
          launch(test::gpu(), kernel);
          ASSERT_LE(result.distance(), test::rounding<T>());
        }
      }
    }
  });
}

TEST(CudaElementwiseLoss, AnInputThatIsNoProbabilityIsReported) {
  TANDEM_NEEDS_GPU();
  for (const float bad : {-0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(100, 0.5F);
    values[42] = bad;
    test::DeviceArray<float> input(values);
    test::DeviceArray<float> target(std::vector<float>(100, 1.F));
    test::DeviceArray<float> loss(std::vector<float>(1));
    launch(test::gpu(), ElementwiseLoss{.op = LossOp::binary,
                                        .dtype = DType::f32,
                                        .loss_per_element = false,
                                        .scale = 1,
                                        .count = 100,
                                        .input = input.data(),
                                        .target = target.data(),
                                        .loss = loss.data()});
    try {
      loss.download();
      FAIL() << "no error";
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find("element 42"), std::string::npos) << error.what();
    }
    loss.download();  // once
  }
}

}  // namespace
}  // namespace tandem::kernels
