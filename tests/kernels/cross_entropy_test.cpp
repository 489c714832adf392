#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cross_entropy.h>

#include "kernels/arrays.h"

namespace tandem::kernels {
namespace {

using test::Rng;
using Indices = std::vector<std::int64_t>;

template <class T>
struct Entropy {
  std::vector<T> normalizer;  // kept from the forward pass for the backward pass
  T scale;
  std::vector<T> loss;
};

// How the losses of rows are combined.
enum class Gather { each, mean, sum };
constexpr Gather kGathers[] = {Gather::each, Gather::mean, Gather::sum};

template <class T>
Entropy<T> cross_entropy(const std::vector<T>& logits, std::int64_t rows, const ClassTarget& target, Gather gather) {
  const std::int64_t classes = rows == 0 ? 3 : static_cast<std::int64_t>(logits.size()) / rows;
  const bool per_row = gather == Gather::each;
  const auto count = static_cast<std::size_t>(rows);
  Entropy<T> result{std::vector<T>(2 * count), T(99), std::vector<T>(per_row ? count : 1, T(99))};
  launch(test::cpu(), CrossEntropy{.dtype = dtype_of<T>,
                                   .loss_per_row = per_row,
                                   .mean = gather == Gather::mean,
                                   .rows = rows,
                                   .classes = classes,
                                   .logits = logits.data(),
                                   .target = target,
                                   .normalizer = result.normalizer.data(),
                                   .scale = &result.scale,
                                   .loss = result.loss.data()});
  return result;
}

template <class T>
Entropy<T> cross_entropy(const std::vector<T>& logits, const std::vector<std::int64_t>& targets, Gather gather) {
  return cross_entropy(logits, static_cast<std::int64_t>(targets.size()), ClassTarget{.indices = targets.data()},
                       gather);
}

// Results of the loops below, in f64: each row's target as shares of the classes, each row's loss, and the denominator
// of a mean.
struct Naive {
  std::vector<double> shares, log_probs;  // [rows, classes]
  std::vector<double> totals, losses;     // [rows]: the sum of the shares, and the loss
  double counted = 0;
};

template <class T>
Naive naive(const std::vector<T>& logits, std::int64_t rows, const ClassTarget& target) {
  Naive made;
  const std::int64_t classes = rows == 0 ? 1 : static_cast<std::int64_t>(logits.size()) / rows;
  const T* probabilities = static_cast<const T*>(target.probabilities);
  const T* weight = static_cast<const T*>(target.weight);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = logits.data() + row * classes;
    const auto highest = static_cast<double>(*std::max_element(x, x + classes));
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(x[c]) - highest);
    const std::int64_t own = target.indices != nullptr ? target.indices[row] : -1;
    const bool ignored = target.indices != nullptr && own == target.ignore_index;
    double loss = 0;
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double p =
          target.indices != nullptr ? (c == own ? 1 : 0) : static_cast<double>(probabilities[row * classes + c]);
      const double w = weight != nullptr ? static_cast<double>(weight[c]) : 1;
      const double smooth = target.label_smoothing;
      made.shares.push_back(ignored ? 0 : w * ((1 - smooth) * p + smooth / static_cast<double>(classes)));
      made.log_probs.push_back(static_cast<double>(x[c]) - highest - std::log(sum));
      total += made.shares.back();
      loss += made.shares.back() == 0 ? 0 : -made.shares.back() * made.log_probs.back();
    }
    made.totals.push_back(total);
    made.losses.push_back(loss);
    made.counted += ignored ? 0 : target.indices == nullptr || weight == nullptr ? 1 : static_cast<double>(weight[own]);
  }
  return made;
}

template <class T>
std::vector<double> naive_losses(const std::vector<T>& logits, const std::vector<std::int64_t>& targets) {
  return naive(logits, static_cast<std::int64_t>(targets.size()), {.indices = targets.data()}).losses;
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

// Tests forward and backward of one target with every way of combining.
template <class T>
void expect_cross_entropy(Rng& rng, std::int64_t rows, std::int64_t classes, const ClassTarget& target) {
  const auto logits = test::random_values<T>(rng, rows * classes, -5, 5);
  const Naive expected = naive(logits, rows, target);
  for (const Gather gather : kGathers) {
    const bool per_row = gather == Gather::each;
    const double scale = gather == Gather::mean ? 1 / expected.counted : 1;
    double sum = 0;
    for (const double loss : expected.losses)
      sum += loss;
    const auto got = cross_entropy(logits, rows, target, gather);
    EXPECT_LE(test::difference(got.loss, per_row ? expected.losses : std::vector<double>{sum * scale}, 1),
              test::tolerance<T>());
    EXPECT_NEAR(static_cast<double>(got.scale), scale, scale * test::tolerance<T>());
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      const auto g = test::random_values<T>(rng, per_row ? rows : 1, 0.5, 2);
      const auto before = test::random_values<T>(rng, rows * classes);
      std::vector<double> logits_grad;
      std::vector<double> target_grad;
      for (std::int64_t i = 0; i < rows * classes; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t row = i / classes;
        const double all = expected.totals[static_cast<std::size_t>(row)];
        const double by = static_cast<double>(g[per_row ? static_cast<std::size_t>(row) : 0]) * scale;
        const double w =
            target.weight != nullptr ? static_cast<double>(static_cast<const T*>(target.weight)[i % classes]) : 1;
        const double start = accumulate == Accumulate::yes ? static_cast<double>(before[at]) : 0;
        logits_grad.push_back(start + (all * std::exp(expected.log_probs[at]) - expected.shares[at]) * by);
        target_grad.push_back(start - w * (1 - target.label_smoothing) * expected.log_probs[at] * by);
      }
      auto result = before;
      launch(test::cpu(), CrossEntropyGrad{.dtype = dtype_of<T>,
                                           .loss_per_row = per_row,
                                           .accumulate = accumulate,
                                           .rows = rows,
                                           .classes = classes,
                                           .logits = logits.data(),
                                           .target = target,
                                           .normalizer = got.normalizer.data(),
                                           .scale = &got.scale,
                                           .grad = g.data(),
                                           .logits_grad = result.data()});
      EXPECT_LE(test::difference(result, logits_grad, 0.1), test::tolerance<T>()) << rows << " x " << classes;
      if (target.probabilities == nullptr) {
        continue;
      }
      result = before;
      launch(test::cpu(), CrossEntropyTargetGrad{.dtype = dtype_of<T>,
                                                 .loss_per_row = per_row,
                                                 .accumulate = accumulate,
                                                 .rows = rows,
                                                 .classes = classes,
                                                 .logits = logits.data(),
                                                 .target = target,
                                                 .normalizer = got.normalizer.data(),
                                                 .scale = &got.scale,
                                                 .grad = g.data(),
                                                 .probabilities_grad = result.data()});
      EXPECT_LE(test::difference(result, target_grad, 0.1), test::tolerance<T>()) << rows << " x " << classes;
    }
  }
}

const std::vector<std::pair<int, int>> kSizes{{1, 1}, {1, 7}, {5, 3}, {64, 10}, {3000, 11}, {3, 20001}};

TYPED_TEST(LossOf, CrossEntropyOfIndicesAgreesWithTheDoubleLoop) {
  Rng rng(47);
  for (const auto& [rows, classes] : kSizes) {
    auto targets = random_targets(rng, rows, classes);
    const auto weight = test::random_values<TypeParam>(rng, classes, 0.5, 2);
    for (const double label_smoothing : {0.0, 0.1, 1.0}) {
      for (const void* weights : {static_cast<const void*>(nullptr), static_cast<const void*>(weight.data())}) {
        expect_cross_entropy<TypeParam>(
            rng, rows, classes, {.indices = targets.data(), .weight = weights, .label_smoothing = label_smoothing});
      }
    }
    for (std::size_t row = 1; row < targets.size(); row += 3)
      targets[row] = -7;
    for (const double label_smoothing : {0.0, 0.1}) {
      expect_cross_entropy<TypeParam>(
          rng, rows, classes,
          {.indices = targets.data(), .weight = weight.data(), .ignore_index = -7, .label_smoothing = label_smoothing});
    }
  }
}

TYPED_TEST(LossOf, CrossEntropyOfProbabilitiesAgreesWithTheDoubleLoop) {
  Rng rng(53);
  for (const auto& [rows, classes] : kSizes) {
    const auto probabilities = test::random_values<TypeParam>(rng, rows * classes, 0, 1);
    const auto weight = test::random_values<TypeParam>(rng, classes, 0.5, 2);
    for (const double label_smoothing : {0.0, 0.1}) {
      for (const void* weights : {static_cast<const void*>(nullptr), static_cast<const void*>(weight.data())}) {
        expect_cross_entropy<TypeParam>(
            rng, rows, classes,
            {.probabilities = probabilities.data(), .weight = weights, .label_smoothing = label_smoothing});
      }
    }
  }
}

// Padding may contain any value.
TYPED_TEST(LossOf, IgnoredRowsAreNotRead) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> logits{nan, nan, 1, 2};
  const std::vector<std::int64_t> targets{5, 0};
  const auto got = cross_entropy(logits, 2, {.indices = targets.data(), .ignore_index = 5}, Gather::mean);
  EXPECT_LE(test::difference(got.loss, naive_losses<T>({1, 2}, {0})), test::tolerance<T>());
  const std::vector<std::int64_t> all{5, 5};
  EXPECT_TRUE(std::isnan(cross_entropy(logits, 2, {.indices = all.data(), .ignore_index = 5}, Gather::mean).loss[0]));
  EXPECT_EQ(cross_entropy(logits, 2, {.indices = all.data(), .ignore_index = 5}, Gather::sum).loss[0], 0);
}

TYPED_TEST(LossOf, AClassWithoutAShareMayBeImpossible) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> probabilities{1, 0};
  EXPECT_EQ(cross_entropy<T>({3, -inf}, 1, {.probabilities = probabilities.data()}, Gather::sum).loss[0], 0);
}

// The result is rounded only once: it is the f32 result, rounded to 16 bits.
template <class T>
void expect_one_rounding() {
  Rng rng(61);
  const std::int64_t rows = 9;
  const std::int64_t classes = 13;
  const auto logits = test::random_values<float>(rng, rows * classes, -5, 5);
  std::vector<T> narrow;
  std::vector<float> wide;
  for (const float x : logits) {
    narrow.push_back(T(x));
    wide.push_back(narrow.back());
  }
  const auto targets = random_targets(rng, rows, classes);
  for (const double label_smoothing : {0.0, 0.1}) {
    std::vector<T> loss(rows);
    std::vector<float> normalizer(2 * rows);
    float scale = 0;
    const ClassTarget target{.indices = targets.data(), .label_smoothing = label_smoothing};
    launch(test::cpu(), CrossEntropy{.dtype = dtype_of<T>,
                                     .loss_per_row = true,
                                     .mean = false,
                                     .rows = rows,
                                     .classes = classes,
                                     .logits = narrow.data(),
                                     .target = target,
                                     .normalizer = normalizer.data(),
                                     .scale = &scale,
                                     .loss = loss.data()});
    const auto expected = cross_entropy(wide, rows, target, Gather::each);
    EXPECT_EQ(normalizer, expected.normalizer);
    for (std::size_t row = 0; row < loss.size(); ++row)
      EXPECT_EQ(loss[row].bits(), T(expected.loss[row]).bits());
  }
}

TEST(LossIn16Bits, IsRoundedOnce) {
  expect_one_rounding<BFloat16>();
  expect_one_rounding<Float16>();
}

TYPED_TEST(LossOf, CrossEntropyOfLargeLogitsKeepsItsDigits) {
  using T = TypeParam;
  const std::vector<T> logits{T(1e6), T(1e6 - 1), T(1e6 - 2), T(-1e6), T(-1e6 + 1), T(-1e6), T(1e30), T(1e30), T(1e30)};
  const std::vector<std::int64_t> targets{1, 0, 2};
  EXPECT_LE(test::difference(cross_entropy(logits, targets, Gather::each).loss, naive_losses(logits, targets)),
            test::tolerance<T>());
}

TYPED_TEST(LossOf, CrossEntropyWithInfiniteLogits) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(cross_entropy<T>({-inf, 2}, Indices{1}, Gather::each).loss[0], 0) << "certain and right";
  EXPECT_EQ(cross_entropy<T>({-inf, 2}, Indices{0}, Gather::each).loss[0], inf) << "certain and wrong";
  EXPECT_FALSE(std::isfinite(cross_entropy<T>({inf, 2}, Indices{0}, Gather::each).loss[0]));
  EXPECT_FALSE(std::isfinite(cross_entropy<T>({inf, 2}, Indices{1}, Gather::each).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({-inf, -inf}, Indices{1}, Gather::each).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({nan, 2}, Indices{1}, Gather::each).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({2, nan}, Indices{0}, Gather::each).loss[0]));
  EXPECT_TRUE(std::isnan(cross_entropy<T>({nan, 2, 1, 1}, Indices{1, 0}, Gather::sum).loss[0]))
      << "a NaN row shows in the sum";
}

TYPED_TEST(LossOf, CrossEntropyOfNoRowsIsZero) {
  EXPECT_TRUE(std::isnan(cross_entropy<TypeParam>({}, Indices{}, Gather::mean).loss[0]));
  EXPECT_EQ(cross_entropy<TypeParam>({}, Indices{}, Gather::sum).loss[0], 0);
  EXPECT_TRUE(cross_entropy<TypeParam>({}, Indices{}, Gather::each).loss.empty());
}

}  // namespace
}  // namespace tandem::kernels
