#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/softmax_loss.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;

template <class T>
struct Entropy {
  std::vector<T> normalizer;  // what the forward pass leaves for the backward pass
  std::vector<T> loss;
};

template <class T>
Entropy<T> cross_entropy(const std::vector<T>& logits, const std::vector<std::int64_t>& targets, bool per_row,
                         double scale = 1) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  const std::int64_t classes = rows == 0 ? 3 : static_cast<std::int64_t>(logits.size()) / rows;
  Entropy<T> result{std::vector<T>(2 * targets.size()), std::vector<T>(per_row ? targets.size() : 1, T(99))};
  launch(test::cpu(), CrossEntropy{.dtype = dtype_of<T>,
                                   .loss_per_row = per_row,
                                   .scale = scale,
                                   .rows = rows,
                                   .classes = classes,
                                   .logits = logits.data(),
                                   .targets = targets.data(),
                                   .normalizer = result.normalizer.data(),
                                   .loss = result.loss.data()});
  return result;
}

template <class T>
std::vector<double> naive_losses(const std::vector<T>& logits, const std::vector<std::int64_t>& targets) {
  std::vector<double> losses;
  const std::size_t classes = targets.empty() ? 0 : logits.size() / targets.size();
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const T* x = logits.data() + row * classes;
    const auto highest = static_cast<double>(*std::max_element(x, x + classes));
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(x[c]) - highest);
    losses.push_back(std::log(sum) - (static_cast<double>(x[targets[row]]) - highest));
  }
  return losses;
}

std::vector<std::int64_t> random_targets(Rng& rng, std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row)
    targets.push_back(test::whole_between(rng, 0, classes - 1));
  return targets;
}

template <class T>
class LossOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LossOf, Types);

TYPED_TEST(LossOf, CrossEntropyAgreesWithTheDoubleLoop) {
  Rng rng(47);
  for (const auto& [rows, classes] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 7}, {5, 3}, {64, 10}, {3000, 11}, {3, 20001}}) {
    const auto logits = test::random_values<TypeParam>(rng, rows * classes, -5, 5);
    const auto targets = random_targets(rng, rows, classes);
    const auto expected = naive_losses(logits, targets);
    EXPECT_LE(test::difference(cross_entropy(logits, targets, true).loss, expected, 1), test::tolerance<TypeParam>());
    double sum = 0;
    for (const double loss : expected)
      sum += loss;
    EXPECT_LE(test::difference(cross_entropy(logits, targets, false, 0.25).loss, std::vector<double>{sum / 4}, 1),
              test::tolerance<TypeParam>());
  }
}

TYPED_TEST(LossOf, CrossEntropyGradientAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(53);
  for (const auto& [rows, classes] : std::vector<std::pair<int, int>>{{1, 1}, {1, 7}, {5, 3}, {3000, 11}}) {
    const auto logits = test::random_values<T>(rng, rows * classes, -5, 5);
    const auto targets = random_targets(rng, rows, classes);
    for (const bool per_row : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const auto g = test::random_values<T>(rng, per_row ? rows : 1, 0.5, 2);
        auto got = test::random_values<T>(rng, rows * classes);
        std::vector<double> expected(got.begin(), got.end());
        for (int row = 0; row < rows; ++row) {
          const T* x = logits.data() + row * classes;
          double sum = 0;
          for (int c = 0; c < classes; ++c)
            sum += std::exp(static_cast<double>(x[c]));
          for (int c = 0; c < classes; ++c) {
            const double p = std::exp(static_cast<double>(x[c])) / sum;
            double& value = expected[static_cast<std::size_t>(row * classes + c)];
            value = (accumulate == Accumulate::yes ? value : 0) +
                    (p - (c == targets[static_cast<std::size_t>(row)] ? 1 : 0)) *
                        static_cast<double>(g[per_row ? static_cast<std::size_t>(row) : 0]) * 0.125;
          }
        }
        const auto forward = cross_entropy(logits, targets, per_row);
        launch(test::cpu(), CrossEntropyGrad{.dtype = dtype_of<T>,
                                             .loss_per_row = per_row,
                                             .accumulate = accumulate,
                                             .scale = 0.125,
                                             .rows = rows,
                                             .classes = classes,
                                             .logits = logits.data(),
                                             .targets = targets.data(),
                                             .normalizer = forward.normalizer.data(),
                                             .grad = g.data(),
                                             .logits_grad = got.data()});
        EXPECT_LE(test::difference(got, expected, 0.1), test::tolerance<T>()) << rows << " x " << classes;
      }
    }
  }
}

TYPED_TEST(LossOf, CrossEntropyOfLargeLogitsKeepsItsDigits) {
  using T = TypeParam;
  const std::vector<T> logits{T(1e6), T(1e6 - 1), T(1e6 - 2), T(-1e6), T(-1e6 + 1), T(-1e6), T(1e30), T(1e30), T(1e30)};
  const std::vector<std::int64_t> targets{1, 0, 2};
  EXPECT_LE(test::difference(cross_entropy(logits, targets, true).loss, naive_losses(logits, targets)),
            test::tolerance<T>());
}

TYPED_TEST(LossOf, CrossEntropyWithInfiniteLogits) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(cross_entropy<T>({-inf, 2}, {1}, true).loss[0], 0) << "certain and right";
  EXPECT_EQ(cross_entropy<T>({-inf, 2}, {0}, true).loss[0], inf) << "certain and wrong";
  EXPECT_FALSE(std::isfinite(cross_entropy<T>({inf, 2}, {0}, true).loss[0]));
  EXPECT_FALSE(std::isfinite(cross_entropy<T>({inf, 2}, {1}, true).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({-inf, -inf}, {1}, true).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({nan, 2}, {1}, true).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({2, nan}, {0}, true).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({nan, 2, 1, 1}, {1, 0}, false).loss[0])) << "a NaN row shows in the sum";
}

TYPED_TEST(LossOf, CrossEntropyOfNoRowsIsZero) {
  EXPECT_EQ(cross_entropy<TypeParam>({}, {}, false).loss[0], 0);
  EXPECT_TRUE(cross_entropy<TypeParam>({}, {}, true).loss.empty());
}

template <class T>
std::vector<T> squared_error(const std::vector<T>& a, const std::vector<T>& b, bool per_element, double scale = 1) {
  std::vector<T> loss(per_element ? a.size() : 1, T(99));
  launch(test::cpu(), SquaredError{.dtype = dtype_of<T>,
                                   .loss_per_element = per_element,
                                   .scale = scale,
                                   .count = static_cast<std::int64_t>(a.size()),
                                   .a = a.data(),
                                   .b = b.data(),
                                   .loss = loss.data()});
  return loss;
}

TYPED_TEST(LossOf, SquaredErrorAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(59);
  for (const std::int64_t count : {1, 2, 7, 8, 9, 32768, 32769, 100003}) {
    const auto a = test::random_values<T>(rng, count);
    const auto b = test::random_values<T>(rng, count);
    std::vector<double> each;
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      each.push_back(d * d);
      sum += d * d;
    }
    EXPECT_LE(test::difference(squared_error(a, b, true), each), test::tolerance<T>()) << count;
    const std::vector<double> mean{sum / static_cast<double>(count)};
    EXPECT_LE(test::difference(squared_error(a, b, false, 1.0 / static_cast<double>(count)), mean),
              test::tolerance<T>())
        << count;

    for (const bool per_element : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const auto g = test::random_values<T>(rng, per_element ? count : 1, 0.5, 2);
        auto got = test::random_values<T>(rng, count);
        std::vector<double> expected(got.begin(), got.end());
        for (std::size_t i = 0; i < a.size(); ++i) {
          expected[i] = (accumulate == Accumulate::yes ? expected[i] : 0) +
                        2 * (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
                            static_cast<double>(g[per_element ? i : 0]) * 0.5;
        }
        launch(test::cpu(), SquaredErrorGrad{.dtype = dtype_of<T>,
                                             .loss_per_element = per_element,
                                             .accumulate = accumulate,
                                             .scale = 0.5,
                                             .count = count,
                                             .a = a.data(),
                                             .b = b.data(),
                                             .grad = g.data(),
                                             .a_grad = got.data()});
        EXPECT_LE(test::difference(got, expected), test::tolerance<T>()) << count;
      }
    }
  }
}

TYPED_TEST(LossOf, SquaredErrorOfNothingIsZeroTimesTheScale) {
  EXPECT_EQ(squared_error<TypeParam>({}, {}, false)[0], 0);
  EXPECT_TRUE(std::isnan(squared_error<TypeParam>({}, {}, false, INFINITY)[0])) << "the mean of nothing";
}

TYPED_TEST(LossOf, SquaredErrorPassesNaNAndInfinityOn) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  EXPECT_EQ(squared_error<TypeParam>({inf, 1}, {0, 1}, false)[0], inf);
  EXPECT_TRUE(std::isnan(squared_error<TypeParam>({inf, 1}, {inf, 1}, false)[0]));
}

}  // namespace
}  // namespace tandem::kernels
