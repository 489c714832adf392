#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/cpu/pointwise_rows.h>

// Tests of the f32 rows of Pointwise for every instruction set of this machine: the distance of functions from the
// exact values, and that a result depends neither on the element's position nor on the strides.

namespace tandem::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

cpu::PointwiseRow<float> row_on(core::Isa isa, PointwiseOp op, Accumulate accumulate = Accumulate::no) {
#if defined(__x86_64__)
  switch (isa) {
    case core::Isa::baseline: break;
    case core::Isa::avx2: return cpu::avx2::pointwise_row(op, accumulate);
    case core::Isa::avx512: return cpu::avx512::pointwise_row(op, accumulate);
  }
#endif
  return cpu::baseline::pointwise_row(op, accumulate);
}

std::vector<float> values_of(core::Isa isa, PointwiseOp op, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  row_on(isa, op)(y.data(), 1, {x.data(), x.data(), x.data()}, {1, 1, 1}, 1, kInf, static_cast<std::int64_t>(x.size()));
  return y;
}

// |got - exact| in units in the last place of a float near `exact`.
double ulps(float got, double exact) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : kInf;
  if (static_cast<double>(got) == exact) return 0;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  const double largest = std::numeric_limits<float>::max();
  if (std::isinf(got)) return std::abs(exact) > largest ? 0 : (largest - std::abs(exact)) / unit + 1;
  return std::abs(static_cast<double>(got) - exact) / unit;
}

double logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

struct Function {
  PointwiseOp op;
  const char* name;
  double (*exact)(double);
  double most_ulps;
};

const Function kFunctions[] = {
    {PointwiseOp::exp, "exp", [](double x) { return std::exp(x); }, 1.5},
    {PointwiseOp::expm1, "expm1", [](double x) { return std::expm1(x); }, 2},
    {PointwiseOp::log, "log", [](double x) { return std::log(x); }, 1},
    {PointwiseOp::log1p, "log1p", [](double x) { return std::log1p(x); }, 1},
    {PointwiseOp::softplus, "softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
     2},
    {PointwiseOp::tanh, "tanh", [](double x) { return std::tanh(x); }, 2},
    {PointwiseOp::sigmoid, "sigmoid", [](double x) { return logistic(x); }, 2},
    {PointwiseOp::sin, "sin", [](double x) { return std::sin(x); }, 1.6},
    {PointwiseOp::cos, "cos", [](double x) { return std::cos(x); }, 1.6},
};

class VectorMathOf : public ::testing::TestWithParam<core::Isa> {};

// Tests every 4099th float: some 2000 of each exponent.
TEST_P(VectorMathOf, IsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (const Function& function : kFunctions) {
    const std::vector<float> y = values_of(GetParam(), function.op, x);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], function.exact(x[i]));
      if (error > worst) worst = error, at = x[i];
    }
    EXPECT_LE(worst, function.most_ulps) << function.name << " at " << at;
  }
}

TEST_P(VectorMathOf, IsRightAtTheEndsOfItsDomain) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x{0.0F, -0.0F, kInf, -kInf, kNaN, -1.0F, 1.0F, kSmallest, -kSmallest, 88.72283F, 88.73F};
  const auto expect = [&](PointwiseOp op, const std::vector<float>& expected) {
    const std::vector<float> y = values_of(GetParam(), op, x);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(y[i])) << "op " << static_cast<int>(op) << " of " << x[i] << " is " << y[i];
      } else {
        EXPECT_EQ(y[i], expected[i]) << "op " << static_cast<int>(op) << " of " << x[i];
        EXPECT_EQ(std::signbit(y[i]), std::signbit(expected[i])) << "op " << static_cast<int>(op) << " of " << x[i];
      }
    }
  };
  expect(PointwiseOp::exp, {1, 1, kInf, 0, kNaN, 0.36787945F, 2.7182817F, 1, 1, std::exp(88.72283F), kInf});
  expect(PointwiseOp::expm1, {0, -0.0F, kInf, -1, kNaN});
  expect(PointwiseOp::log, {-kInf, -kInf, kInf, kNaN, kNaN, kNaN, 0, -103.27893F, kNaN});
  expect(PointwiseOp::log1p, {0, -0.0F, kInf, kNaN, kNaN, -kInf, 0.6931472F, kSmallest, -kSmallest});
  expect(PointwiseOp::tanh, {0, -0.0F, 1, -1, kNaN, -0.7615942F, 0.7615942F, kSmallest, -kSmallest, 1, 1});
  expect(PointwiseOp::sigmoid, {0.5F, 0.5F, 1, 0, kNaN});
  expect(PointwiseOp::sin, {0, -0.0F, kNaN, kNaN, kNaN});
  expect(PointwiseOp::cos, {1, 1, kNaN, kNaN, kNaN});
  EXPECT_EQ(values_of(GetParam(), PointwiseOp::exp, {-103.9F})[0], kSmallest) << "underflow is gradual";
  EXPECT_EQ(values_of(GetParam(), PointwiseOp::exp, {-104.0F})[0], 0);
}

TEST_P(VectorMathOf, PowersAreWithinOneUnitInTheLastPlaceAndRightAtTheEnds) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const std::vector<float> bases{0.0F, -0.0F, 1.0F,      -1.0F,      2.0F,  -2.0F,  0.5F, -0.5F,  3.0F,      -3.0F,
                                 kInf, -kInf, kSmallest, -kSmallest, kMost, -kMost, kNaN, 1e-30F, 0.9999999F};
  const std::vector<float> exponents{0.0F, -0.0F,  1.0F,      -1.0F,      2.0F,        -2.0F,   3.0F,   -3.0F,
                                     0.5F, -0.5F,  1.5F,      4194303.0F, 1e30F,       -1e30F,  kInf,   -kInf,
                                     kNaN, 1e-30F, kSmallest, 4194304.0F, 16777215.0F, -127.0F, 149.0F, 2.5F};
  std::vector<float> x, y;
  for (const float base : bases) {
    for (const float exponent : exponents) {
      x.push_back(base);
      y.push_back(exponent);
    }
  }
  // Bases around 1 and of any size, for results within range and out of it.
  for (std::uint32_t i = 0; i < 400'000; ++i) {
    x.push_back(std::bit_cast<float>(i % 2 == 0 ? i * 10'711U : 0x3f000000U + i * 41U));
    const double size = 200 / std::max(std::abs(std::log2(std::abs(double{x.back()}))), 1e-3);
    y.push_back(static_cast<float>(size * std::cos(0.7 * i)));
    if (!std::isfinite(y.back())) y.back() = 1;
    if (i % 3 == 0) y.back() = std::round(y.back());
  }
  std::vector<float> got(x.size());
  row_on(GetParam(), PointwiseOp::pow)(got.data(), 1, {x.data(), y.data(), y.data()}, {1, 1, 1}, 0, 0,
                                       static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::pow(double{x[i]}, double{y[i]});
    ASSERT_LE(ulps(got[i], exact), 1) << x[i] << " to the power " << y[i] << " is not " << got[i];
    ASSERT_TRUE(std::isnan(exact) || std::signbit(got[i]) == std::signbit(exact)) << x[i] << " to the power " << y[i];
  }
}

// gelu's factor Phi(x) keeps all its digits far below 0, unless it is denormal.
TEST_P(VectorMathOf, GeluKeepsItsDigitsInTheLowerTail) {
  std::vector<float> x;
  for (int i = 0; i < 20000; ++i) {
    x.push_back(-12.8F + 0.001F * static_cast<float>(i));
  }
  const std::vector<float> y = values_of(GetParam(), PointwiseOp::gelu, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = double{x[i]} * std::erfc(-double{x[i]} / std::sqrt(2.0)) / 2;
    ASSERT_LE(ulps(y[i], exact), 6) << x[i];
  }
}

// Computes the same 64 elements as one row, cut anywhere, with gaps, in reverse order, and as broadcast neighbours.
TEST_P(VectorMathOf, AResultDependsOnItsElementAlone) {
  constexpr std::int64_t kCount = 64;
  std::vector<float> g, x;
  for (std::int64_t i = 0; i < kCount; ++i) {
    g.push_back(0.37F * static_cast<float>(i % 7) - 0.8F);
    x.push_back(0.13F * static_cast<float>(i) - 4.1F);
  }
  for (int k = 0; k < static_cast<int>(PointwiseOp::count_); ++k) {
    const auto op = static_cast<PointwiseOp>(k);
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      const auto row = row_on(GetParam(), op, accumulate);
      const float* const a = arity(op) == 1 ? x.data() : g.data();
      const std::vector<float> old(kCount, 0.25F);
      const auto same = [](float p, float q) {
        return std::bit_cast<std::uint32_t>(p) == std::bit_cast<std::uint32_t>(q);
      };
      std::vector<float> whole = old;
      row(whole.data(), 1, {a, x.data(), x.data()}, {1, 1, 1}, 0.75F, 1.5F, kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        const auto at = static_cast<std::size_t>(i);
        std::vector<float> part = old;
        row(part.data(), 1, {a + i, x.data() + i, x.data() + i}, {1, 1, 1}, 0.75F, 1.5F, kCount - i);
        ASSERT_TRUE(same(part[0], whole[at]) || std::isnan(whole[at])) << "op " << k << " from " << i;
        row(part.data() + 1, 1, {a + i, x.data() + i, x.data() + i}, {0, 0, 0}, 0.75F, 1.5F, kCount - 1);
        if (accumulate == Accumulate::no) {
          ASSERT_TRUE(same(part[1], whole[at]) || std::isnan(whole[at])) << "op " << k << " broadcast from " << i;
        }
      }
      std::vector<float> spread(2 * kCount, 0.25F);
      const std::int64_t end = kCount - 1;
      row(spread.data(), 2, {a + end, x.data() + end, x.data() + end}, {-1, -1, -1}, 0.75F, 1.5F, kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float expected = whole[static_cast<std::size_t>(end - i)];
        ASSERT_TRUE(same(spread[static_cast<std::size_t>(2 * i)], expected) || std::isnan(expected)) << "op " << k;
        ASSERT_EQ(spread[static_cast<std::size_t>(2 * i + 1)], 0.25F) << "op " << k << ": a gap";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, VectorMathOf, ::testing::ValuesIn(core::available_isas()),
                         [](const auto& isa) { return core::to_string(isa.param); });

// Ops without a vector formula use plain arithmetic: the same bits for every instruction set.
TEST(PointwiseRows, PlainArithmeticIsTheSameForEveryInstructionSet) {
  std::vector<float> a, b;
  for (int i = 0; i < 1003; ++i) {
    a.push_back(0.0137F * static_cast<float>(i) - 6.1F);
    b.push_back(7.3F - 0.0171F * static_cast<float>(i));
  }
  const auto count = static_cast<std::int64_t>(a.size());
  for (int k = 0; k < static_cast<int>(PointwiseOp::count_); ++k) {
    const auto op = static_cast<PointwiseOp>(k);
    if (cpu::is_vector_math(op)) continue;
    std::vector<float> expected(a.size());
    for (const core::Isa isa : core::available_isas()) {
      std::vector<float> out(a.size());
      row_on(isa, op)(out.data(), 1, {a.data(), b.data(), a.data()}, {1, 1, 1}, 0.75F, 1.5F, count);
      if (isa == core::Isa::baseline) expected = out;
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(out[i] == expected[i] || (std::isnan(out[i]) && std::isnan(expected[i])))
            << "op " << k << " at " << i << " on " << core::to_string(isa);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
