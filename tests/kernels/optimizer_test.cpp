#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/clip.h>
#include <tandem/kernels/optimizer.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

constexpr std::int64_t kCounts[] = {0, 1, 7, 1000, 32769, 70001};

template <class T>
class OptimizerOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerOf, Types);

struct SgdCase {
  double momentum, dampening, weight_decay;
  bool nesterov;
};

TYPED_TEST(OptimizerOf, SgdAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(97);
  for (const auto& c : {SgdCase{0, 0, 0, false}, SgdCase{0, 0, 0.1, false}, SgdCase{0.9, 0, 0, false},
                        SgdCase{0.9, 0.5, 0.1, false}, SgdCase{0.8, 0, 0.01, true}}) {
    for (const std::int64_t count : kCounts) {
      auto param = test::random_values<T>(rng, count);
      std::vector<T> buffer(param.size(), T(0));
      std::vector<double> p(param.begin(), param.end());
      std::vector<double> b(p.size());
      StepState state{.learning_rate = 0.1, .momentum = c.momentum, .weight_decay = c.weight_decay};
      for (int step = 1; step <= 3; ++step) {
        const auto grad = test::random_values<T>(rng, count);
        state.step = step;
        launch(test::cpu(), Sgd{.dtype = dtype_of<T>,
                                .count = count,
                                .param = param.data(),
                                .grad = grad.data(),
                                .momentum_buffer = c.momentum != 0 ? buffer.data() : nullptr,
                                .state = &state,
                                .dampening = c.dampening,
                                .nesterov = c.nesterov});
        for (std::size_t i = 0; i < p.size(); ++i) {
          double g = static_cast<double>(grad[i]) + c.weight_decay * p[i];
          if (c.momentum != 0) {
            b[i] = step == 1 ? g : c.momentum * b[i] + (1 - c.dampening) * g;
            g = c.nesterov ? g + c.momentum * b[i] : b[i];
          }
          p[i] -= 0.1 * g;
        }
      }
      EXPECT_LE(test::difference(param, p), test::tolerance<T>()) << count << " momentum " << c.momentum;
    }
  }
}

TYPED_TEST(OptimizerOf, AdamAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(101);
  for (const auto& [weight_decay, decoupled] : {std::pair{0.0, false}, {0.1, false}, {0.1, true}}) {
    for (const std::int64_t count : kCounts) {
      auto param = test::random_values<T>(rng, count);
      std::vector<T> m(param.size());
      std::vector<T> v(param.size());
      std::vector<double> p(param.begin(), param.end());
      std::vector<double> mean(p.size());
      std::vector<double> square(p.size());
      StepState state{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = weight_decay};
      for (int step = 1; step <= 4; ++step) {
        const auto grad = test::random_values<T>(rng, count);
        state.step = step;
        launch(test::cpu(), Adam{.dtype = dtype_of<T>,
                                 .count = count,
                                 .param = param.data(),
                                 .grad = grad.data(),
                                 .exp_avg = m.data(),
                                 .exp_avg_sq = v.data(),
                                 .state = &state,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .decoupled = decoupled});
        for (std::size_t i = 0; i < p.size(); ++i) {
          if (decoupled) p[i] *= 1 - 0.01 * weight_decay;
          const double g = static_cast<double>(grad[i]) + (decoupled ? 0 : weight_decay * p[i]);
          mean[i] = 0.9 * mean[i] + (1 - 0.9) * g;
          square[i] = 0.999 * square[i] + (1 - 0.999) * g * g;
          p[i] -= 0.01 * (mean[i] / (1 - std::pow(0.9, step))) /
                  (std::sqrt(square[i] / (1 - std::pow(0.999, step))) + 1e-8);
        }
      }
      EXPECT_LE(test::difference(param, p), test::tolerance<T>()) << count;
      EXPECT_LE(test::difference(v, square), 2 * test::tolerance<T>()) << count;
    }
  }
}

TYPED_TEST(OptimizerOf, AZeroGradientLeavesAdamInPlace) {
  using T = TypeParam;
  std::vector<T> param{1, -2};
  const std::vector<T> grad{0, 0};
  std::vector<T> m(2), v(2);
  const StepState state{.learning_rate = 0.1, .step = 1, .momentum = 0.9, .weight_decay = 0};
  launch(test::cpu(), Adam{.dtype = dtype_of<T>,
                           .count = 2,
                           .param = param.data(),
                           .grad = grad.data(),
                           .exp_avg = m.data(),
                           .exp_avg_sq = v.data(),
                           .state = &state,
                           .beta2 = 0.999,
                           .eps = 1e-8,
                           .decoupled = false});
  EXPECT_EQ(param, (std::vector<T>{1, -2}));
}

// Without weight decay the term is left out, like in PyTorch: 0 * inf would be NaN.
TYPED_TEST(OptimizerOf, AnInfiniteParameterStaysWithoutWeightDecay) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> infinite{inf, -inf, inf, 1, inf, inf, inf, inf, inf};
  const std::vector<T> grad(infinite.size(), T(0.5));
  const StepState state{.learning_rate = 0.1, .step = 2, .momentum = 0.9, .weight_decay = 0};
  const auto expect_same = [&](const char* name, const std::vector<T>& param) {
    for (std::size_t i = 0; i < param.size(); ++i) {
      EXPECT_TRUE(param[i] == infinite[i] || i == 3) << name << " at " << i << ": " << param[i];
      EXPECT_TRUE(std::isfinite(param[i]) || i != 3) << name << ": " << param[i];
    }
  };
  const auto count = static_cast<std::int64_t>(infinite.size());
  for (const bool kept : {false, true}) {
    for (const bool other : {false, true}) {
      std::vector<T> param = infinite, a(infinite.size()), b = a, c = a;
      launch(test::cpu(), Sgd{.dtype = dtype_of<T>,
                              .count = count,
                              .param = param.data(),
                              .grad = grad.data(),
                              .momentum_buffer = kept ? a.data() : nullptr,
                              .state = &state,
                              .dampening = 0,
                              .nesterov = other});
      expect_same("sgd", param);
      param = infinite;
      launch(test::cpu(), Adam{.dtype = dtype_of<T>,
                               .count = count,
                               .param = param.data(),
                               .grad = grad.data(),
                               .exp_avg = a.data(),
                               .exp_avg_sq = b.data(),
                               .state = &state,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .decoupled = kept,
                               .max_exp_avg_sq = other ? c.data() : nullptr});
      expect_same("adam", param);
      param = infinite;
      launch(test::cpu(), RmsProp{.dtype = dtype_of<T>,
                                  .count = count,
                                  .param = param.data(),
                                  .grad = grad.data(),
                                  .square_avg = b.data(),
                                  .grad_avg = kept ? a.data() : nullptr,
                                  .momentum_buffer = other ? c.data() : nullptr,
                                  .state = &state,
                                  .alpha = 0.9,
                                  .eps = 1e-8});
      expect_same("rmsprop", param);
      param = infinite;
      launch(test::cpu(), Adagrad{.dtype = dtype_of<T>,
                                  .count = count,
                                  .param = param.data(),
                                  .grad = grad.data(),
                                  .sum = b.data(),
                                  .state = &state,
                                  .lr_decay = 0,
                                  .eps = 1e-10});
      expect_same("adagrad", param);
    }
  }
}

// PyTorch's plain momentum does not use the gradient a second time: inf - inf would be NaN.
TYPED_TEST(OptimizerOf, AnInfiniteGradientOfPlainMomentumGivesAnInfiniteParameter) {
  using T = TypeParam;
  std::vector<T> param{1, 1};
  const std::vector<T> grad{std::numeric_limits<T>::infinity(), 1};
  std::vector<T> buffer(2);
  const StepState state{.learning_rate = 0.1, .step = 2, .momentum = 0.9, .weight_decay = 0};
  launch(test::cpu(), Sgd{.dtype = dtype_of<T>,
                          .count = 2,
                          .param = param.data(),
                          .grad = grad.data(),
                          .momentum_buffer = buffer.data(),
                          .state = &state,
                          .dampening = 0,
                          .nesterov = false});
  EXPECT_EQ(param[0], -std::numeric_limits<T>::infinity());
  EXPECT_TRUE(std::isfinite(param[1]));
}

TYPED_TEST(OptimizerOf, SquaredNormIsGatheredInDouble) {
  using T = TypeParam;
  Rng rng(103);
  double total = 99;
  Accumulate accumulate = Accumulate::no;
  double expected = 0;
  for (const std::int64_t count : kCounts) {
    const auto values = test::random_values<T>(rng, count);
    launch(
        test::cpu(),
        SquaredNorm{
            .dtype = dtype_of<T>, .accumulate = accumulate, .count = count, .values = values.data(), .total = &total});
    accumulate = Accumulate::yes;
    for (const T value : values)
      expected += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(total, expected, 1e-12 * expected);
  }
}

TEST(SquaredNorm, OfLargeF32DoesNotOverflow) {
  const std::vector<float> values(3, 1e30f);
  double total = 0;
  launch(test::cpu(), SquaredNorm{.dtype = DType::f32, .count = 3, .values = values.data(), .total = &total});
  EXPECT_NEAR(total / 3e60, 1, 1e-6);
}

TYPED_TEST(OptimizerOf, ClipByNormScalesOnlyWhatIsTooLong) {
  using T = TypeParam;
  const std::vector<T> original{3, -4, 12};
  for (const double max_norm : {1.0, 12.9, 13.1, 100.0}) {
    auto values = original;
    const double norm = 13;
    launch(test::cpu(),
           ClipByNorm{.dtype = dtype_of<T>, .count = 3, .values = values.data(), .norm = &norm, .max_norm = max_norm});
    const double factor = std::min(1.0, max_norm / (13 + 1e-6));
    EXPECT_LE(test::difference(values, std::vector<double>{3 * factor, -4 * factor, 12 * factor}),
              test::tolerance<T>());
    EXPECT_EQ(values == original, factor == 1);
  }
}

TYPED_TEST(OptimizerOf, ClipByNormPassesNaNOn) {
  std::vector<TypeParam> values{1, 2};
  const double norm = NAN;
  launch(test::cpu(),
         ClipByNorm{.dtype = dtype_of<TypeParam>, .count = 2, .values = values.data(), .norm = &norm, .max_norm = 1});
  EXPECT_TRUE(std::isnan(values[0])) << "a norm that is not a number must not look healthy";
}

}  // namespace
}  // namespace tandem::kernels
