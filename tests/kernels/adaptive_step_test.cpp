#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/clip.h>
#include <tandem/kernels/optimizer.h>

#include "kernels/arrays.h"

// Tests of adaptive steps, averages and clipping, for sizes that are cut into several chunks.

namespace tandem::kernels {
namespace {

using test::Rng;

constexpr std::int64_t kCounts[] = {0, 1, 7, 1000, 32769, 70001};

template <class T>
class AdaptiveStepOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdaptiveStepOf, Types);

TYPED_TEST(AdaptiveStepOf, RmsPropAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(211);
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const std::int64_t count : kCounts) {
        auto param = test::random_values<T>(rng, count);
        std::vector<T> square(param.size()), mean(param.size()), buffer(param.size());
        std::vector<double> p(param.begin(), param.end());
        std::vector<double> s(p.size()), m(p.size()), b(p.size());
        StepState state{.learning_rate = 0.01, .momentum = momentum, .weight_decay = 0.1};
        for (int step = 1; step <= 3; ++step) {
          const auto grad = test::random_values<T>(rng, count);
          state.step = step;
          launch(test::cpu(), RmsProp{.dtype = dtype_of<T>,
                                      .count = count,
                                      .param = param.data(),
                                      .grad = grad.data(),
                                      .square_avg = square.data(),
                                      .grad_avg = centered ? mean.data() : nullptr,
                                      .momentum_buffer = momentum != 0 ? buffer.data() : nullptr,
                                      .state = &state,
                                      .alpha = 0.9,
                                      .eps = 0.1,
                                      .maximize = true});
          for (std::size_t i = 0; i < p.size(); ++i) {
            const double g = 0.1 * p[i] - static_cast<double>(grad[i]);
            s[i] = 0.9 * s[i] + (1 - 0.9) * g * g;
            m[i] = 0.9 * m[i] + (1 - 0.9) * g;
            const double variance = s[i] - (centered ? m[i] * m[i] : 0);
            b[i] = momentum * b[i] + g / (std::sqrt(variance) + 0.1);
            p[i] -= 0.01 * b[i];
          }
        }
        EXPECT_LE(test::difference(param, p), test::tolerance<T>()) << count << " momentum " << momentum;
        EXPECT_LE(test::difference(square, s), 2 * test::tolerance<T>()) << count;
      }
    }
  }
}

TYPED_TEST(AdaptiveStepOf, AdagradAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(223);
  for (const std::int64_t count : kCounts) {
    auto param = test::random_values<T>(rng, count);
    std::vector<T> sum(param.size(), T(0.5));
    std::vector<double> p(param.begin(), param.end());
    std::vector<double> s(p.size(), 0.5);
    StepState state{.learning_rate = 0.1, .weight_decay = 0.1};
    for (int step = 1; step <= 3; ++step) {
      const auto grad = test::random_values<T>(rng, count);
      state.step = step;
      launch(test::cpu(), Adagrad{.dtype = dtype_of<T>,
                                  .count = count,
                                  .param = param.data(),
                                  .grad = grad.data(),
                                  .sum = sum.data(),
                                  .state = &state,
                                  .lr_decay = 0.5,
                                  .eps = 1e-10});
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = static_cast<double>(grad[i]) + 0.1 * p[i];
        s[i] += g * g;
        p[i] -= 0.1 / (1 + (step - 1) * 0.5) * g / (std::sqrt(s[i]) + 1e-10);
      }
    }
    EXPECT_LE(test::difference(param, p), test::tolerance<T>()) << count;
    EXPECT_LE(test::difference(sum, s), 2 * test::tolerance<T>()) << count;
  }
}

TYPED_TEST(AdaptiveStepOf, AmsgradDividesByTheLargestSecondMoment) {
  using T = TypeParam;
  Rng rng(227);
  for (const std::int64_t count : kCounts) {
    auto param = test::random_values<T>(rng, count);
    std::vector<T> m(param.size()), v(param.size()), most(param.size());
    std::vector<double> p(param.begin(), param.end());
    std::vector<double> mean(p.size()), square(p.size()), largest(p.size());
    StepState state{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 0};
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
                               .beta2 = 0.5,
                               .eps = 1e-8,
                               .decoupled = false,
                               .max_exp_avg_sq = most.data()});
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = static_cast<double>(grad[i]);
        mean[i] = 0.9 * mean[i] + (1 - 0.9) * g;
        square[i] = 0.5 * square[i] + 0.5 * g * g;
        largest[i] = std::max(largest[i], square[i]);
        p[i] -=
            0.01 * (mean[i] / (1 - std::pow(0.9, step))) / (std::sqrt(largest[i] / (1 - std::pow(0.5, step))) + 1e-8);
      }
    }
    EXPECT_LE(test::difference(param, p), test::tolerance<T>()) << count;
    EXPECT_LE(test::difference(most, largest), 2 * test::tolerance<T>()) << count;
  }
}

TYPED_TEST(AdaptiveStepOf, MovingAverage) {
  using T = TypeParam;
  Rng rng(229);
  for (const std::int64_t count : kCounts) {
    auto average = test::random_values<T>(rng, count);
    const auto values = test::random_values<T>(rng, count);
    std::vector<double> expected(average.begin(), average.end());
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = 0.75 * expected[i] + 0.25 * static_cast<double>(values[i]);
    launch(
        test::cpu(),
        MovingAverage{
            .dtype = dtype_of<T>, .count = count, .average = average.data(), .values = values.data(), .decay = 0.75});
    EXPECT_LE(test::difference(average, expected), test::tolerance<T>()) << count;
  }
}

TYPED_TEST(AdaptiveStepOf, PowerNormAddsPowersOrTakesTheLargest) {
  using T = TypeParam;
  Rng rng(233);
  for (const double power : {1.0, 0.5, 3.0, std::numeric_limits<double>::infinity()}) {
    double total = 99;
    Accumulate accumulate = Accumulate::no;
    double expected = 0;
    for (const std::int64_t count : kCounts) {
      const auto values = test::random_values<T>(rng, count);
      launch(test::cpu(), PowerNorm{.dtype = dtype_of<T>,
                                    .accumulate = accumulate,
                                    .count = count,
                                    .values = values.data(),
                                    .total = &total,
                                    .power = power});
      accumulate = Accumulate::yes;
      for (const T value : values) {
        const double size = std::abs(static_cast<double>(value));
        expected = std::isinf(power) ? std::max(expected, size) : expected + std::pow(size, power);
      }
      EXPECT_NEAR(total, expected, 1e-12 * expected) << power;
    }
  }
}

TYPED_TEST(AdaptiveStepOf, PowerNormPassesNaNOn) {
  for (const double power : {1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    for (const std::size_t at : {0u, 1u, 40000u}) {
      std::vector<TypeParam> values(70001, TypeParam(1));
      values[at] = std::numeric_limits<TypeParam>::quiet_NaN();
      double total = 5;
      launch(test::cpu(), PowerNorm{.dtype = dtype_of<TypeParam>,
                                    .accumulate = Accumulate::yes,
                                    .count = 70001,
                                    .values = values.data(),
                                    .total = &total,
                                    .power = power});
      EXPECT_TRUE(std::isnan(total)) << power << " at " << at;
    }
  }
}

TYPED_TEST(AdaptiveStepOf, ClipByValue) {
  using T = TypeParam;
  std::vector<T> values{3, -4, 0.5, -0.5, 1, std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()};
  launch(test::cpu(), ClipByValue{.dtype = dtype_of<T>, .count = 7, .values = values.data(), .limit = 1});
  EXPECT_TRUE(std::isnan(values[5]));
  values[5] = 0;
  EXPECT_EQ(values, (std::vector<T>{1, -1, 0.5, -0.5, 1, 0, -1}));
}

}  // namespace
}  // namespace tandem::kernels
