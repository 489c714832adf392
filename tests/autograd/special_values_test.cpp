#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

// Values at the limits of a dtype, NaN and infinity, and gradients at points without a derivative.

namespace tandem {
namespace {

using test::message_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> gradient_of(const Tensor& leaf, const Tensor& result) {
  result.sum().backward();
  return leaf.grad().to_vector<double>();
}

TEST(StdGradient, IsZeroWhereAllValuesAreEqual) {
  const Tensor x = tensor({3.0, 3.0, 3.0, 1.0, 2.0, 3.0}, {.dtype = DType::f64}).reshape({2, 3}).requires_grad_();
  const std::vector<double> grad = gradient_of(x, x.std({1}, 0));
  for (const std::size_t i : {0, 1, 2}) {
    EXPECT_EQ(grad[i], 0) << "as in PyTorch, and not 0 / 0";
  }
  EXPECT_LT(grad[3], 0);
  EXPECT_TRUE(std::isnan(ones({1}).std().item())) << "one sample has no deviation";
}

TEST(ReluGradient, PassesWhereTheValueIsNan) {
  const Tensor x = tensor({kNan, 1.0, 0.0, -1.0}).requires_grad_();
  EXPECT_EQ(gradient_of(x, x.relu()), (std::vector<double>{1, 1, 0, 0}));
}

TEST(MaximumGradient, GoesToBothWhereOneIsNan) {
  for (const bool max : {true, false}) {
    const Tensor a = tensor({kNan, 1.0, 2.0}).requires_grad_();
    const Tensor b = tensor({1.0, kNan, 2.0}).requires_grad_();
    const Tensor result = max ? maximum(a, b) : minimum(a, b);
    EXPECT_EQ(gradient_of(a, result), (std::vector<double>{1, 1, 0.5}));
    EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{1, 1, 0.5}));
  }
}

TEST(Gelu, KeepsItsDigitsFarBelowZero) {
  for (const double x : {-3.0, -4.0, -5.0}) {
    const Tensor f32 = tensor({x}).requires_grad_();
    const Tensor f64 = tensor({x}, {.dtype = DType::f64}).requires_grad_();
    for (const auto how : {GELUApproximation::none, GELUApproximation::tanh}) {
      const double exact = gelu(f64, how).item();
      EXPECT_NEAR(gelu(f32, how).item(), exact, 1e-5 * std::abs(exact));
    }
    EXPECT_NEAR(gelu(f64).item(), x / 2 * std::erfc(-x / std::sqrt(2.0)), 1e-15);
  }
}

TEST(ClampOfIntegers, LimitsBeyondTheTypeAreNone) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  using Whole = std::vector<std::int64_t>;
  const Tensor x = tensor<std::int64_t>({kLowest, -5, 0, 5, kHighest});
  EXPECT_EQ(x.clamp(-kInfinity, kInfinity).to_vector<std::int64_t>(), (Whole{kLowest, -5, 0, 5, kHighest}));
  EXPECT_EQ(x.clamp(0, kInfinity).to_vector<std::int64_t>(), (Whole{0, 0, 0, 5, kHighest}));
  EXPECT_EQ(x.clamp(-1e30, 1).to_vector<std::int64_t>(), (Whole{kLowest, -5, 0, 1, 1}));
  const Tensor small = tensor({0, 7, 255}, {.dtype = DType::u8});
  EXPECT_EQ(small.clamp(-1, 100).to_vector<std::int64_t>(), (Whole{0, 7, 100}));
  EXPECT_EQ(small.clamp(5, 1000).to_vector<std::int64_t>(), (Whole{5, 7, 255}));
}

TEST(ClampOfIntegers, FractionsMakeTheResultF32) {
  const Tensor x = tensor({0, 1, 2});
  EXPECT_EQ(x.clamp(0.5, 1.5).dtype(), DType::f32);
  EXPECT_EQ(x.clamp(0.5, 1.5).to_vector<double>(), (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ(x.clamp(1, kInfinity).dtype(), DType::i64);
  EXPECT_EQ(message_of<DTypeError>([&] { x.clone().clamp_(0.5, 2); }),
            "clamp_: the result is f32 and does not fit into the i64 tensor that is changed in place; use the op that "
            "returns a new tensor");
}

TEST(PowOfU8, RejectsAnExponentThatWouldWrapAround) {
  const Tensor x = tensor({2}, {.dtype = DType::u8});
  EXPECT_EQ(x.pow(255).item<int>(), 0);
  EXPECT_EQ(message_of<ValueError>([&] { x.pow(256); }),
            "pow: the exponent 256 does not fit into u8; convert with .to(DType::i64)");
}

TEST(SpecialValues, TheMaximumOfAllPassesItsGradientToNaN) {
  const Tensor x = tensor({1.0 * NAN, 1.0, 2.0}, {.requires_grad = true});
  x.max().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 0, 0}));
}

TEST(SpecialValues, CrossEntropyShowsANumberThatIsNone) {
  for (const double other : {1.0 * NAN, 0.0}) {
    const Tensor x = tensor({1.0, other, 1.0 * INFINITY}).reshape({1, 3});
    EXPECT_TRUE(std::isnan(cross_entropy(x, tensor({0})).item()));
  }
}

TEST(SpecialValues, TheVarianceOfOneNumberAlongItsDimensionIsZero) {
  EXPECT_EQ(tensor(3.0).var({0}, 0).item(), 0);
  EXPECT_EQ(tensor(3.0).std(-1, 0).item(), 0);
}

TEST(SpecialValues, ANumberThatDividesSixteenBitsIsNotRoundedFirst) {
  Tensor x = tensor({100.0}, {.dtype = DType::f16});
  EXPECT_NEAR((x / 1e6).item(), 1e-4, 1e-6);
  x.div_(1e6);
  EXPECT_NEAR(x.item(), 1e-4, 1e-6);
}

TEST(SpecialValues, NumbersBeyond64BitsAreNotWrapped) {
  EXPECT_THROW(tensor({2.0}) * SIZE_MAX, ConfigError);
  EXPECT_THROW(full({1}, SIZE_MAX), ConfigError);
  EXPECT_THROW(tensor({SIZE_MAX}), ConfigError);
  EXPECT_THROW(tensor({-1}) == SIZE_MAX, ConfigError);
}

TEST(SpecialValues, BoolsAndBoolNumbers) {
  EXPECT_EQ((tensor({true, false}) + true).to_vector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ((tensor({true, false}) * true).to_vector<bool>(), (std::vector<bool>{true, false}));
  const Tensor mask = tensor({true, false});
  EXPECT_EQ((~mask | (mask & mask)).to_vector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ((mask ^ mask).any().item(), 0);
  EXPECT_THROW(tensor({1, 2}) & mask, DTypeError);
  EXPECT_EQ((1 < tensor({1, 2})).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ((2 == tensor({1, 2})).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(tensor({1, 0, 0, 0}).reshape({2, 2}).any(1).to_vector<bool>(), (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace tandem
