#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/nll_loss.h>

#include "kernels/arrays.h"

// Tests of the element-wise losses and the negative log-likelihood against plain loops in f64.

namespace tandem::kernels {
namespace {

using test::Rng;

constexpr double kThreshold = 0.75;

// A loss and its derivatives, written as in a textbook.
struct Formula {
  LossOp op;
  double low, high;  // of the input; targets of binary losses are in [0, 1]
  std::function<double(double x, double t, double pos_weight)> loss, input_grad, target_grad;
};

double sign(double d) { return d > 0 ? 1 : d < 0 ? -1 : 0; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Formula of_difference(LossOp op, const std::function<double(double d)>& loss,
                      const std::function<double(double d)>& slope) {
  return {.op = op,
          .low = -2,
          .high = 2,
          .loss = [=](double x, double t, double) { return loss(x - t); },
          .input_grad = [=](double x, double t, double) { return slope(x - t); },
          .target_grad = [=](double x, double t, double) { return -slope(x - t); }};
}

std::vector<Formula> formulas() {
  constexpr double k = kThreshold;
  return {
      of_difference(
          LossOp::squared, [](double d) { return d * d; }, [](double d) { return 2 * d; }),
      of_difference(
          LossOp::absolute, [](double d) { return std::abs(d); }, sign),
      of_difference(
          LossOp::smooth_l1, [](double d) { return std::abs(d) < k ? d * d / 2 / k : std::abs(d) - k / 2; },
          [](double d) { return std::abs(d) < k ? d / k : sign(d); }),
      of_difference(
          LossOp::huber, [](double d) { return std::abs(d) <= k ? d * d / 2 : k * (std::abs(d) - k / 2); },
          [](double d) { return std::abs(d) <= k ? d : k * sign(d); }),
      {.op = LossOp::binary,
       .low = 0.05,
       .high = 0.95,
       .loss = [](double x, double t, double) { return -t * std::log(x) - (1 - t) * std::log(1 - x); },
       .input_grad = [](double x, double t, double) { return (1 - t) / (1 - x) - t / x; },
       .target_grad = [](double x, double, double) { return std::log(1 - x) - std::log(x); }},
      {.op = LossOp::binary_logits,
       .low = -4,
       .high = 4,
       .loss = [](double x, double t,
                  double p) { return -p * t * std::log(sigmoid(x)) - (1 - t) * std::log(1 - sigmoid(x)); },
       .input_grad = [](double x, double t, double p) { return (1 - t) * sigmoid(x) - p * t * (1 - sigmoid(x)); },
       .target_grad = [](double x, double, double p) { return std::log(1 - sigmoid(x)) - p * std::log(sigmoid(x)); }},
  };
}

template <class T>
class ElementwiseLossOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ElementwiseLossOf, Types);

template <class T>
std::vector<T> losses_of(LossOp op, const std::vector<T>& input, const std::vector<T>& target, bool per_element,
                         double scale = 1, const T* weight = nullptr, const T* pos_weight = nullptr) {
  std::vector<T> loss(per_element ? input.size() : 1, T(99));
  launch(test::cpu(), ElementwiseLoss{.op = op,
                                      .dtype = dtype_of<T>,
                                      .loss_per_element = per_element,
                                      .scale = scale,
                                      .threshold = kThreshold,
                                      .count = static_cast<std::int64_t>(input.size()),
                                      .input = input.data(),
                                      .target = target.data(),
                                      .weight = weight,
                                      .pos_weight = pos_weight,
                                      .loss = loss.data()});
  return loss;
}

template <class T>
void expect_agreement(Rng& rng, const Formula& formula, std::int64_t count, bool weighted) {
  const bool binary = formula.op >= LossOp::binary;
  const auto input = test::random_values<T>(rng, count, formula.low, formula.high);
  const auto target = test::random_values<T>(rng, count, binary ? 0 : -2, binary ? 1 : 2);
  const auto weight = test::random_values<T>(rng, count, 0.5, 2);
  const auto pos_weight = test::random_values<T>(rng, count, 0.5, 2);
  const T* weights = weighted ? weight.data() : nullptr;
  const T* pos_weights = weighted ? pos_weight.data() : nullptr;
  const auto expected_of = [&](const auto& function) {
    std::vector<double> made;
    for (std::size_t i = 0; i < input.size(); ++i) {
      const bool counts_positive = weighted && formula.op == LossOp::binary_logits;
      made.push_back((weighted ? static_cast<double>(weight[i]) : 1) *
                     function(static_cast<double>(input[i]), static_cast<double>(target[i]),
                              counts_positive ? static_cast<double>(pos_weight[i]) : 1));
    }
    return made;
  };
  const auto each = expected_of(formula.loss);
  double sum = 0;
  for (const double loss : each)
    sum += loss;
  EXPECT_LE(test::difference(losses_of(formula.op, input, target, true, 1, weights, pos_weights), each, 1),
            test::tolerance<T>());
  const auto mean = losses_of(formula.op, input, target, false, 1.0 / static_cast<double>(count), weights, pos_weights);
  EXPECT_LE(test::difference(mean, std::vector<double>{sum / static_cast<double>(count)}, 1), test::tolerance<T>());

  for (const bool of_target : {false, true}) {
    const auto slope = expected_of(of_target ? formula.target_grad : formula.input_grad);
    for (const bool per_element : {false, true}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const auto g = test::random_values<T>(rng, per_element ? count : 1, 0.5, 2);
        auto got = test::random_values<T>(rng, count);
        std::vector<double> expected(got.begin(), got.end());
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = (accumulate == Accumulate::yes ? expected[i] : 0) +
                        slope[i] * static_cast<double>(g[per_element ? i : 0]) * 0.5;
        launch(test::cpu(), ElementwiseLossGrad{.op = formula.op,
                                                .dtype = dtype_of<T>,
                                                .loss_per_element = per_element,
                                                .of_target = of_target,
                                                .accumulate = accumulate,
                                                .scale = 0.5,
                                                .threshold = kThreshold,
                                                .count = count,
                                                .input = input.data(),
                                                .target = target.data(),
                                                .weight = weights,
                                                .pos_weight = pos_weights,
                                                .grad = g.data(),
                                                .result = got.data()});
        EXPECT_LE(test::difference(got, expected, 1), test::tolerance<T>());
      }
    }
  }
}

TYPED_TEST(ElementwiseLossOf, EveryFormulaAgreesWithTheDoubleLoop) {
  Rng rng(59);
  for (const Formula& formula : formulas()) {
    for (const std::int64_t count : {1, 2, 7, 8, 9, 8193, 32768, 32769, 100003}) {
      SCOPED_TRACE(::testing::Message() << "op " << static_cast<int>(formula.op) << ", " << count << " elements");
      expect_agreement<TypeParam>(rng, formula, count, false);
      if (formula.op >= LossOp::binary) {
        expect_agreement<TypeParam>(rng, formula, count, true);
      }
    }
  }
}

TYPED_TEST(ElementwiseLossOf, NothingIsZeroTimesTheScale) {
  for (const Formula& formula : formulas()) {
    EXPECT_EQ(losses_of<TypeParam>(formula.op, {}, {}, false)[0], 0);
    EXPECT_TRUE(std::isnan(losses_of<TypeParam>(formula.op, {}, {}, false, INFINITY)[0])) << "the mean of nothing";
  }
}

TYPED_TEST(ElementwiseLossOf, NaNAndInfinityArePassedOn) {
  const TypeParam inf = std::numeric_limits<TypeParam>::infinity();
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const Formula& formula : formulas()) {
    EXPECT_TRUE(std::isnan(losses_of<TypeParam>(formula.op, {nan, 1}, {0, 1}, false)[0]));
    EXPECT_TRUE(std::isnan(losses_of<TypeParam>(formula.op, {TypeParam(0.5)}, {nan}, false)[0]));
    if (formula.op < LossOp::binary) {
      EXPECT_EQ(losses_of<TypeParam>(formula.op, {inf, 1}, {0, 1}, false)[0], inf);
      EXPECT_TRUE(std::isnan(losses_of<TypeParam>(formula.op, {inf, 1}, {inf, 1}, false)[0]));
    }
  }
}

TYPED_TEST(ElementwiseLossOf, NegativeLogLikelihoodAgreesWithTheDoubleLoop) {
  using T = TypeParam;
  Rng rng(67);
  for (const Shape& sizes : {Shape{1, 1, 1}, {7, 3, 1}, {5, 4, 6}, {1, 3, 40000}, {20000, 3, 2}}) {
    const std::int64_t outer = sizes[0];
    const std::int64_t classes = sizes[1];
    const std::int64_t inner = sizes[2];
    const auto log_probs = test::random_values<T>(rng, sizes.numel(), -5, 0);
    const auto weight = test::random_values<T>(rng, classes, 0.5, 2);
    std::vector<std::int64_t> indices;
    for (std::int64_t row = 0; row < outer * inner; ++row)
      indices.push_back(row % 4 == 3 ? -1 : test::whole_between(rng, 0, classes - 1));
    for (const bool per_row : {false, true}) {
      for (const bool weighted : {false, true}) {
        std::vector<double> each;
        std::vector<double> slope(log_probs.size());
        double sum = 0;
        double counted = 0;
        for (std::int64_t row = 0; row < outer * inner; ++row) {
          const std::int64_t index = indices[static_cast<std::size_t>(row)];
          each.push_back(0);
          if (index >= 0) {
            const auto at = static_cast<std::size_t>((row / inner * classes + index) * inner + row % inner);
            const double w = weighted ? static_cast<double>(weight[static_cast<std::size_t>(index)]) : 1;
            each.back() = -w * static_cast<double>(log_probs[at]);
            slope[at] = -w;
            counted += w;
          }
          sum += each.back();
        }
        std::vector<T> loss(per_row ? each.size() : 1);
        T scale = 0;
        launch(test::cpu(), NegativeLogLikelihood{.dtype = dtype_of<T>,
                                                  .loss_per_row = per_row,
                                                  .mean = true,
                                                  .outer = outer,
                                                  .classes = classes,
                                                  .inner = inner,
                                                  .log_probs = log_probs.data(),
                                                  .indices = indices.data(),
                                                  .weight = weighted ? weight.data() : nullptr,
                                                  .ignore_index = -1,
                                                  .scale = &scale,
                                                  .loss = loss.data()});
        EXPECT_LE(test::difference(loss, per_row ? each : std::vector<double>{sum / counted}, 1), test::tolerance<T>());
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          const auto g = test::random_values<T>(rng, per_row ? outer * inner : 1, 0.5, 2);
          auto got = test::random_values<T>(rng, sizes.numel());
          std::vector<double> expected(got.begin(), got.end());
          for (std::int64_t i = 0; i < sizes.numel(); ++i) {
            const auto row = static_cast<std::size_t>(i / (classes * inner) * inner + i % inner);
            const auto at = static_cast<std::size_t>(i);
            expected[at] = (accumulate == Accumulate::yes ? expected[at] : 0) +
                           slope[at] * static_cast<double>(g[per_row ? row : 0]) * (per_row ? 1 : 1 / counted);
          }
          launch(test::cpu(), NegativeLogLikelihoodGrad{.dtype = dtype_of<T>,
                                                        .loss_per_row = per_row,
                                                        .accumulate = accumulate,
                                                        .outer = outer,
                                                        .classes = classes,
                                                        .inner = inner,
                                                        .indices = indices.data(),
                                                        .weight = weighted ? weight.data() : nullptr,
                                                        .ignore_index = -1,
                                                        .scale = &scale,
                                                        .grad = g.data(),
                                                        .log_probs_grad = got.data()});
          EXPECT_LE(test::difference(got, expected, 1), test::tolerance<T>()) << to_string(sizes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
