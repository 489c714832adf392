#include <tandem/nn/loss.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

// Tests of losses against naive loops in double precision, and at extreme values.

namespace tandem {
namespace {

using test::message_of;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::IsNan;
using ::testing::Pointwise;

using Values = std::vector<double>;

const Reduction kReductions[] = {Reduction::none, Reduction::mean, Reduction::sum};

Values reduced(const Values& each, Reduction reduction) {
  if (reduction == Reduction::none) {
    return each;
  }
  double sum = 0;
  for (const double x : each) {
    sum += x;
  }
  return {reduction == Reduction::sum ? sum : sum / static_cast<double>(each.size())};
}

void expect_close(const Tensor& got, const Values& expected, DType dtype) {
  const Values values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0;
  for (const double x : expected) {
    largest = std::max(largest, std::abs(x));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], largest * (dtype == DType::f32 ? 1e-6 : 1e-12)) << i;
  }
}

TEST(CrossEntropy, EqualsTheNaiveLoop) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const auto& [rows, classes] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 7}, {33, 10}, {5, 1000}}) {
      const Tensor logits = (randn({rows, classes}, {.dtype = DType::f64}) * 4).to(DType::f32).to(dtype);
      const Tensor target = randint(0, classes, {rows});
      const Values z = logits.to_vector<double>();
      const auto t = target.to_vector<std::int64_t>();
      Values each;
      for (std::int64_t row = 0; row < rows; ++row) {
        // Sum differences to the target's logit: log(sum(exp)) - z would lose the digits of a small loss.
        const std::int64_t own = t[static_cast<std::size_t>(row)];
        const double* of_row = &z[static_cast<std::size_t>(row * classes)];
        double others = 0;
        for (std::int64_t c = 0; c < classes; ++c) {
          others += c == own ? 0 : std::exp(of_row[c] - of_row[own]);
        }
        each.push_back(std::log1p(others));
      }
      for (const Reduction reduction : kReductions) {
        const Tensor loss = nn::CrossEntropyLoss({.reduction = reduction})(logits, target);
        expect_close(loss, reduced(each, reduction), dtype);
        EXPECT_EQ(loss.dtype(), dtype);
        EXPECT_EQ(loss.dim(), reduction == Reduction::none ? 1 : 0);
      }
    }
  }
}

TEST(Mse, EqualsTheNaiveLoop) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& sizes : {Shape{}, {1}, {7}, {3, 5}, {300, 70}}) {
      const Tensor a = randn(sizes, {.dtype = dtype});
      const Tensor b = randn(sizes, {.dtype = dtype});
      const Values x = a.to_vector<double>();
      const Values y = b.to_vector<double>();
      Values each;
      for (std::size_t i = 0; i < x.size(); ++i) {
        each.push_back((x[i] - y[i]) * (x[i] - y[i]));
      }
      for (const Reduction reduction : kReductions) {
        expect_close(nn::MSELoss(reduction)(a, b), reduced(each, reduction), dtype);
      }
    }
  }
}

// ---- extreme values ----

Tensor row(const Values& values, DType dtype) {
  Tensor made = from_data(values, {1, static_cast<std::int64_t>(values.size())}).to(dtype);
  return made.requires_grad_();
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double large : {100.0, 1000.0, 1e30}) {
      const Tensor right = row({large, 0, -large}, dtype);
      const Tensor loss = cross_entropy(right, tensor({0}));
      EXPECT_EQ(loss.item(), 0);
      loss.backward();
      EXPECT_THAT(right.grad().to_vector<double>(), Pointwise(DoubleNear(1e-40), Values{0, 0, 0}));
      const Tensor wrong = row({large, 0, -large}, dtype);
      const Tensor far_off = cross_entropy(wrong, tensor({2}));
      EXPECT_NEAR(far_off.item() / (2 * large), 1, 1e-6);
      far_off.backward();
      EXPECT_THAT(wrong.grad().to_vector<double>(), Pointwise(DoubleNear(1e-40), Values{1, 0, -1}));
    }
    const Tensor equal = row({1e30, 1e30}, dtype);
    EXPECT_TRUE(std::isfinite(cross_entropy(equal, tensor({1})).item()));
  }
}

// A masked class has probability zero.
TEST(CrossEntropy, MinusInfinityIsProbabilityZero) {
  const Tensor logits = row({0, -HUGE_VAL, 0}, DType::f64);
  const Tensor loss = cross_entropy(logits, tensor({0}));
  EXPECT_NEAR(loss.item(), std::log(2.0), 1e-15);
  loss.backward();
  const Values gradient = logits.grad().to_vector<double>();
  EXPECT_NEAR(gradient[0], -0.5, 1e-15);
  EXPECT_EQ(gradient[1], 0);
  EXPECT_NEAR(gradient[2], 0.5, 1e-15);
  EXPECT_EQ(cross_entropy(row({0, -HUGE_VAL}, DType::f64), tensor({1})).item(), HUGE_VAL);
  EXPECT_TRUE(std::isnan(cross_entropy(row({-HUGE_VAL, -HUGE_VAL}, DType::f64), tensor({1})).item()));
}

TEST(CrossEntropy, NanStaysInItsRow) {
  const Tensor logits = from_data(Values{0, 0, std::nan(""), 0, 1, 1}, {3, 2}, {.requires_grad = true});
  const Tensor loss = cross_entropy(logits, tensor({0, 1, 0}), {.reduction = Reduction::none});
  const Values each = loss.to_vector<double>();
  EXPECT_NEAR(each[0], std::log(2.0), 1e-15);
  EXPECT_TRUE(std::isnan(each[1]));
  EXPECT_NEAR(each[2], std::log(2.0), 1e-15);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, tensor({0, 1, 0})).item())) << "and is not swallowed by the mean";
  loss.sum().backward();
  const Values gradient = logits.grad().to_vector<double>();
  EXPECT_NEAR(gradient[0], -0.5, 1e-15);
  EXPECT_TRUE(std::isnan(gradient[2]));
  EXPECT_NEAR(gradient[5], 0.5, 1e-15);
}

TEST(Softmax, LargeLogitsAndInfinities) {
  EXPECT_EQ(softmax(row({1e30, 0}, DType::f32), 1).to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(softmax(row({-1e30, -1e30}, DType::f32), 1).to_vector<double>(), (Values{0.5, 0.5}));
  EXPECT_EQ(softmax(row({0, -HUGE_VAL}, DType::f64), 1).to_vector<double>(), (Values{1, 0}));
  EXPECT_EQ(log_softmax(row({0, -HUGE_VAL}, DType::f64), 1).to_vector<double>(), (Values{0, -HUGE_VAL}));
  EXPECT_THAT(softmax(row({-HUGE_VAL, -HUGE_VAL}, DType::f64), 1).to_vector<double>(), Each(IsNan()));
  EXPECT_THAT(softmax(row({std::nan(""), 0}, DType::f64), 1).to_vector<double>(), Each(IsNan()));
}

TEST(Mse, InfinitiesAndNanArrive) {
  const Tensor zero = zeros({2}, {.dtype = DType::f64});
  EXPECT_EQ(mse_loss(from_data(Values{HUGE_VAL, 0}), zero).item(), HUGE_VAL);
  EXPECT_TRUE(std::isnan(mse_loss(from_data(Values{std::nan(""), 0}), zero).item()));
  EXPECT_EQ(mse_loss(full({1}, 1e30), zeros({1})).item(), HUGE_VAL) << "beyond f32";
}

TEST(Loss, TheMeanOfNothingIsNanAndTheSumIsZero) {
  const Tensor none = from_data(std::vector<std::int64_t>{});
  EXPECT_TRUE(std::isnan(cross_entropy(zeros({0, 3}), none).item()));
  EXPECT_EQ(cross_entropy(zeros({0, 3}), none, {.reduction = Reduction::sum}).item(), 0);
  EXPECT_EQ(cross_entropy(zeros({0, 3}), none, {.reduction = Reduction::none}).numel(), 0);
  EXPECT_TRUE(std::isnan(mse_loss(zeros({0}), zeros({0})).item()));
  EXPECT_EQ(mse_loss(zeros({0}), zeros({0}), Reduction::sum).item(), 0);
}

// Expects PyTorch 2's result. PyTorch's other losses require equal types.
TEST(Regression, TypesArePromotedWherePyTorchPromotes) {
  const Tensor x = tensor({0.5, 0.25}, {.requires_grad = true});
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  struct Case {
    Loss loss;
    double value;
    Values gradient;
  };
  const Case cases[] = {
      {[](const Tensor& a, const Tensor& b) { return mse_loss(a, b); }, 0.15625, {-0.5, 0.25}},
      {[](const Tensor& a, const Tensor& b) { return l1_loss(a, b); }, 0.375, {-0.5, 0.5}},
      {[](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b); }, 0.078125, {-0.25, 0.125}},
  };
  for (const Case& c : cases) {
    for (const DType dtype : {DType::i64, DType::u8, DType::f64, DType::bf16}) {
      x.zero_grad();
      const Tensor loss = c.loss(x, tensor({1, 0}, {.dtype = dtype}));
      EXPECT_EQ(loss.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
      EXPECT_EQ(loss.item(), c.value);
      loss.backward();
      EXPECT_EQ(x.grad().dtype(), DType::f32);
      EXPECT_EQ(x.grad().to_vector<double>(), c.gradient);
    }
    EXPECT_EQ(c.loss(tensor({1, 0}), x).item(), c.value) << "either may be the one of integers";
  }
  EXPECT_EQ(mse_loss(x, tensor({true, false})).item(), 0.15625);
  EXPECT_EQ(message_of<DTypeError>([&] { l1_loss(x, tensor({true, false})); }),
            "l1_loss: expected one dtype, got f32 [2] and bool [2]; convert one with .to(DType::f32)");
}

}  // namespace
}  // namespace tandem
