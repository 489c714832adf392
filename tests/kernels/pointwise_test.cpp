#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/kernels/pointwise.h>

#include "kernels/arrays.h"
#include "support/message.h"

namespace tandem::kernels {
namespace {

using test::Layout;
using test::Rng;
using enum PointwiseOp;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct OpCase {
  PointwiseOp op;
  const char* name;
  double (*oracle)(double a, double b, double c, double s);
  bool positive = false;  // defined for positive inputs only
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double phi(double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; }
double inner(double x) { return x + 0.044715 * x * x * x; }

const OpCase kCases[] = {
    {copy, "copy", [](double a, double, double, double) { return a; }},
    {add, "add", [](double a, double b, double, double) { return a + b; }},
    {sub, "sub", [](double a, double b, double, double) { return a - b; }},
    {mul, "mul", [](double a, double b, double, double) { return a * b; }},
    {add_scalar, "add_scalar", [](double a, double, double, double s) { return a + s; }},
    {mul_scalar, "mul_scalar", [](double a, double, double, double s) { return a * s; }},
    {rsub_scalar, "rsub_scalar", [](double a, double, double, double s) { return s - a; }},
    {neg, "neg", [](double a, double, double, double) { return -a; }},
    {PointwiseOp::div, "div", [](double a, double b, double, double) { return a / b; }},
    {rdiv_scalar, "rdiv_scalar", [](double a, double, double, double s) { return s / a; }},
    {PointwiseOp::exp, "exp", [](double a, double, double, double) { return std::exp(a); }},
    {PointwiseOp::log, "log", [](double a, double, double, double) { return std::log(a); }, true},
    {PointwiseOp::sqrt, "sqrt", [](double a, double, double, double) { return std::sqrt(a); }, true},
    {relu, "relu", [](double a, double, double, double) { return a > 0 ? a : 0; }},
    {PointwiseOp::abs, "abs", [](double a, double, double, double) { return std::fabs(a); }},
    {pow_scalar, "pow_scalar", [](double a, double, double, double s) { return std::pow(a, s); }, true},
    {sqrt_grad, "sqrt_grad", [](double a, double b, double, double) { return a / (2 * b); }, true},
    {relu_grad, "relu_grad", [](double a, double b, double, double) { return b > 0 ? a : 0; }},
    {abs_grad, "abs_grad", [](double a, double b, double, double) { return b > 0 ? a : -a; }},
    {pow_scalar_grad, "pow_scalar_grad",
     [](double a, double b, double, double s) { return a * s * std::pow(b, s - 1); }, true},
    {rdiv_scalar_grad, "rdiv_scalar_grad", [](double a, double b, double, double s) { return -a * s / (b * b); }},
    {div_grad, "div_grad", [](double a, double b, double c, double) { return -a * b / (c * c); }},
    {equal, "equal", [](double a, double b, double, double) { return a == b ? 1.0 : 0.0; }},
    {sign, "sign", [](double a, double, double, double) { return a > 0   ? 1.0
                                                                 : a < 0 ? -1.0
                                                                         : 0.0; }},
    {clamp, "clamp", [](double a, double, double, double s) { return std::fmin(std::fmax(a, s), 0); }},
    {maximum, "maximum", [](double a, double b, double, double) { return std::fmax(a, b); }},
    {minimum, "minimum", [](double a, double b, double, double) { return std::fmin(a, b); }},
    {PointwiseOp::pow, "pow", [](double a, double b, double, double) { return std::pow(a, b); }, true},
    {PointwiseOp::expm1, "expm1", [](double a, double, double, double) { return std::expm1(a); }},
    {PointwiseOp::log1p, "log1p", [](double a, double, double, double) { return std::log1p(a); }, true},
    {rsqrt, "rsqrt", [](double a, double, double, double) { return 1 / std::sqrt(a); }, true},
    {PointwiseOp::sin, "sin", [](double a, double, double, double) { return std::sin(a); }},
    {PointwiseOp::cos, "cos", [](double a, double, double, double) { return std::cos(a); }},
    {PointwiseOp::tanh, "tanh", [](double a, double, double, double) { return std::tanh(a); }},
    {PointwiseOp::floor, "floor", [](double a, double, double, double) { return std::floor(a); }},
    {PointwiseOp::ceil, "ceil", [](double a, double, double, double) { return std::ceil(a); }},
    {PointwiseOp::round, "round", [](double a, double, double, double) { return std::nearbyint(a); }},
    {sigmoid, "sigmoid", [](double a, double, double, double) { return logistic(a); }},
    {silu, "silu", [](double a, double, double, double) { return a * logistic(a); }},
    {gelu, "gelu", [](double a, double, double, double) { return a * phi(a); }},
    {gelu_tanh, "gelu_tanh",
     [](double a, double, double, double) { return a / 2 * (1 + std::tanh(0.7978845608028654 * inner(a))); }},
    {softplus, "softplus",
     [](double a, double, double, double s) { return a * s > 0 ? a : std::log(1 + std::exp(a * s)) / s; }},
    {leaky_relu, "leaky_relu", [](double a, double, double, double s) { return a > 0 ? a : a * s; }},
    {elu, "elu", [](double a, double, double, double s) { return a > 0 ? a : s * (std::exp(a) - 1); }},
    {clamp_grad, "clamp_grad", [](double a, double b, double, double s) { return b >= s && b <= 0 ? a : 0; }},
    {extreme_grad, "extreme_grad", [](double a, double b, double c, double) { return b > c    ? a
                                                                                     : b == c ? a / 2
                                                                                              : 0; }},
    {pow_grad_base, "pow_grad_base", [](double a, double b, double c, double) { return a * c * std::pow(b, c - 1); },
     true},
    {pow_grad_exponent, "pow_grad_exponent",
     [](double a, double b, double c, double) { return a * std::pow(b, c) * std::log(b); }, true},
    {expm1_grad, "expm1_grad", [](double a, double b, double, double) { return a * (b + 1); }},
    {log1p_grad, "log1p_grad", [](double a, double b, double, double) { return a / (1 + b); }, true},
    {rsqrt_grad, "rsqrt_grad", [](double a, double b, double, double) { return -a / 2 * b * b * b; }},
    {sin_grad, "sin_grad", [](double a, double b, double, double) { return a * std::cos(b); }},
    {cos_grad, "cos_grad", [](double a, double b, double, double) { return -a * std::sin(b); }},
    {tanh_grad, "tanh_grad", [](double a, double b, double, double) { return a * (1 - b * b); }},
    {sigmoid_grad, "sigmoid_grad", [](double a, double b, double, double) { return a * b * (1 - b); }},
    {silu_grad, "silu_grad",
     [](double a, double b, double, double) { return a * (logistic(b) + b * logistic(b) * (1 - logistic(b))); }},
    {gelu_grad, "gelu_grad",
     [](double a, double b, double, double) { return a * (phi(b) + b * 0.3989422804014327 * std::exp(-b * b / 2)); }},
    {gelu_tanh_grad, "gelu_tanh_grad",
     [](double a, double b, double, double) {
       const double t = std::tanh(0.7978845608028654 * inner(b));
       return a * ((1 + t) / 2 + b / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * b * b));
     }},
    {softplus_grad, "softplus_grad",
     [](double a, double b, double, double s) { return b * s > 0 ? a : a * logistic(b * s); }},
    {leaky_relu_grad, "leaky_relu_grad", [](double a, double b, double, double s) { return b > 0 ? a : a * s; }},
    {elu_grad, "elu_grad", [](double a, double b, double, double s) { return b > 0 ? a : a * s * std::exp(b); }},
    {scaled_product, "scaled_product", [](double a, double b, double c, double s) { return s * a * b * c; }},
};

TEST(PointwiseCases, AreComplete) { EXPECT_EQ(std::size(kCases), static_cast<std::size_t>(count_)); }

// Compares one launch on random layouts with the double loop. Memory between the elements must not change.
template <class T>
void expect_right(const OpCase& op, const Shape& sizes, Accumulate accumulate, bool simplified, Rng& rng) {
  const bool integers = !std::is_floating_point_v<T>;
  if (integers && op.op == PointwiseOp::pow) return;  // overflows: see IntegerPowersWrap
  const double scalar = integers ? 3 : op.op == pow_scalar || op.op == pow_scalar_grad ? 1.7 : 0.75;
  std::vector<T> inputs[3];
  Layout layouts[3];
  for (int i = 0; i < 3; ++i) {
    layouts[i] = test::random_layout(rng, sizes, true);
    inputs[i] = test::random_values<T>(rng, layouts[i].extent, integers ? 0 : 0.25, integers ? 40 : 2);
    for (T& value : inputs[i]) {
      if (!op.positive && !std::is_same_v<T, std::uint8_t> && rng() % 2 == 0) value = static_cast<T>(-value);
    }
  }
  const Layout out_layout = test::random_layout(rng, sizes, false);
  std::vector<T> out = test::random_values<T>(rng, out_layout.extent, 0, integers ? 40 : 2);
  std::vector<double> expected(out.begin(), out.end());
  test::for_each_element(
      sizes,
      [&](std::size_t o, std::size_t a, std::size_t b, std::size_t c) {
        const double value = op.oracle(static_cast<double>(inputs[0][a]), static_cast<double>(inputs[1][b]),
                                       static_cast<double>(inputs[2][c]), scalar);
        expected[o] = accumulate == Accumulate::yes ? expected[o] + value : value;
        if (std::is_same_v<T, std::uint8_t>) expected[o] = static_cast<std::uint8_t>(static_cast<int>(expected[o]));
      },
      out_layout, layouts[0], layouts[1], layouts[2]);

  Pointwise kernel{.op = op.op,
                   .dtype = dtype_of<T>,
                   .accumulate = accumulate,
                   .loop = test::loop_of(sizes),
                   .out = test::operand_of(out, out_layout),
                   .in = {},
                   .s = scalar};
  for (int i = 0; i < 3; ++i)
    kernel.in[i] = test::operand_of(inputs[i], layouts[i]);
  if (simplified) simplify(kernel.loop, {&kernel.out, &kernel.in[0], &kernel.in[1], &kernel.in[2]});
  launch(test::cpu(), kernel);
  EXPECT_LE(test::difference(out, expected), integers ? 0 : test::tolerance<T>())
      << op.name << " " << name(dtype_of<T>) << " " << to_string(sizes) << (simplified ? " simplified" : "");
}

template <class T>
class PointwiseOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(PointwiseOf, Types);

TYPED_TEST(PointwiseOf, EveryOpAgreesWithTheDoubleLoop) {
  Rng rng(7);
  for (const OpCase& op : kCases) {
    if (!std::is_floating_point_v<TypeParam> && op.op > kLastIntegerPointwise) continue;
    for (const Shape& sizes : test::awkward_shapes()) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        expect_right<TypeParam>(op, sizes, accumulate, rng() % 2 == 0, rng);
      }
    }
  }
}

// A dense launch, which takes the paths with compile-time strides.
template <class T>
std::vector<T> dense(PointwiseOp op, std::vector<T> a, std::vector<T> b, double scalar = 0, std::vector<T> c = {}) {
  std::vector<T> out(a.size());
  if (c.empty()) c = a;
  Pointwise kernel{.op = op,
                   .dtype = dtype_of<T>,
                   .loop = test::loop_of({static_cast<std::int64_t>(a.size())}),
                   .out = {out.data(), {1}},
                   .in = {{a.data(), {1}}, {b.data(), {1}}, {c.data(), {1}}},
                   .s = scalar};
  launch(test::cpu(), kernel);
  return out;
}

TEST(Pointwise, OutMayBeAnInput) {
  std::vector<float> a{1, 2, 3, 4, 5};
  std::vector<float> b{10, 20, 30, 40, 50};
  for (int target : {0, 1}) {
    std::vector<float> x = a, y = b;
    const Pointwise kernel{.op = sub,
                           .dtype = DType::f32,
                           .loop = test::loop_of({5}),
                           .out = {target == 0 ? x.data() : y.data(), {1}},
                           .in = {{x.data(), {1}}, {y.data(), {1}}, {x.data(), {1}}}};
    launch(test::cpu(), kernel);
    EXPECT_EQ(target == 0 ? x : y, (std::vector<float>{-9, -18, -27, -36, -45}));
  }
}

TEST(Pointwise, KeepsNaNAndInfinity) {
  const std::vector<double> x{kNaN, kInf, -kInf, -0.0, 0.0};
  EXPECT_TRUE(std::isnan(dense(relu, x, x)[0]));
  EXPECT_EQ(dense(relu, x, x)[1], kInf);
  EXPECT_EQ(dense(relu, x, x)[2], 0);
  EXPECT_EQ(dense(PointwiseOp::exp, x, x)[2], 0);
  EXPECT_EQ(dense(PointwiseOp::log, x, x)[4], -kInf);
  EXPECT_TRUE(std::isnan(dense(PointwiseOp::log, x, x)[2]));
  EXPECT_EQ(dense(PointwiseOp::abs, x, x)[2], kInf);
  EXPECT_FALSE(std::signbit(dense(PointwiseOp::abs, x, x)[3]));
  EXPECT_EQ(dense(equal, x, x), (std::vector<double>{1, 1, 1, 1, 1})) << "NaN is found where it is the extreme value";
}

TEST(Pointwise, GradientsAtKinksAreZero) {
  const std::vector<double> g{5, 5, 5};
  EXPECT_EQ(dense(relu_grad, g, {0.0, -0.0, -1.0}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(dense(relu_grad, g, {kNaN, kNaN, kNaN}), g) << "as PyTorch's threshold_backward";
  EXPECT_EQ(dense(abs_grad, g, {0.0, -0.0, -2.0}), (std::vector<double>{0, 0, -5}));
}

TEST(Pointwise, PowersWithSpecialExponents) {
  const std::vector<double> x{-2, 0, 3};
  EXPECT_EQ(dense(pow_scalar, x, x, 2), (std::vector<double>{4, 0, 9}));
  EXPECT_EQ(dense(pow_scalar, x, x, 3), (std::vector<double>{-8, 0, 27}));
  EXPECT_EQ(dense(pow_scalar, x, x, 0), (std::vector<double>{1, 1, 1}));
  EXPECT_TRUE(std::isnan(dense(pow_scalar, x, x, 0.5)[0]));
  const std::vector<double> g{1, 1, 1};
  EXPECT_EQ(dense(pow_scalar_grad, g, x, 2), (std::vector<double>{-4, 0, 6}));
  EXPECT_EQ(dense(pow_scalar_grad, g, x, 1), (std::vector<double>{1, 1, 1})) << "0 ** 0 is 1";
  EXPECT_EQ(dense(pow_scalar_grad, g, x, 0), (std::vector<double>{0, 0, 0})) << "even where x ** -1 is infinite";
}

template <class T>
void expect_gradients_of_special_powers() {
  const std::vector<T> values{0, T(-0.0), 1, -1, 2, -2, T(0.5), T(-0.5), 3, T(-2.5), T(kInf), T(-kInf), T(kNaN)};
  std::vector<T> base, exponent;
  for (const T a : values) {
    for (const T b : values) {
      base.push_back(a);
      exponent.push_back(b);
    }
  }
  std::vector<T> g(base.size(), 2), of_base(base.size()), of_exponent(base.size());
  for (auto [op, out] : {std::pair{pow_grad_base, &of_base}, {pow_grad_exponent, &of_exponent}}) {
    launch(test::cpu(), Pointwise{.op = op,
                                  .dtype = dtype_of<T>,
                                  .loop = test::loop_of({std::ssize(base)}),
                                  .out = {out->data(), {1}},
                                  .in = {{g.data(), {1}}, {base.data(), {1}}, {exponent.data(), {1}}}});
  }
  const auto expect_like = [](T got, T expected) {
    if (std::isfinite(expected)) {
      EXPECT_NEAR(got, expected, 4e-6 * std::abs(expected));
    } else {
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected) << got << ", expected " << expected;
    }
  };
  for (std::size_t i = 0; i < base.size(); ++i) {
    const T a = base[i];
    const T b = exponent[i];
    SCOPED_TRACE(fmt::format("{} ** {}", a, b));
    expect_like(of_base[i], b == 0 ? 0 : 2 * b * std::pow(a, b - 1));
    expect_like(of_exponent[i], a == 0 && b >= 0 ? 0 : 2 * std::pow(a, b) * std::log(a));
  }
}

TEST(Pointwise, GradientsOfPowersOfSpecialValuesAreThoseOfTheirFormulas) {
  expect_gradients_of_special_powers<float>();
  expect_gradients_of_special_powers<double>();
}

TEST(Pointwise, IntegersWrapAround) {
  using I64 = std::numeric_limits<std::int64_t>;
  using I32 = std::numeric_limits<std::int32_t>;
  EXPECT_EQ(dense<std::int64_t>(add, {I64::max()}, {1})[0], I64::min());
  EXPECT_EQ(dense<std::int64_t>(sub, {I64::min()}, {1})[0], I64::max());
  EXPECT_EQ(dense<std::int64_t>(mul, {I64::max()}, {2})[0], -2);
  EXPECT_EQ(dense<std::int64_t>(neg, {I64::min()}, {0})[0], I64::min());
  EXPECT_EQ(dense<std::int64_t>(add_scalar, {I64::max()}, {0}, 1)[0], I64::min());
  EXPECT_EQ(dense<std::int32_t>(add, {I32::max()}, {1})[0], I32::min());
  EXPECT_EQ(dense<std::int32_t>(mul, {1 << 20}, {1 << 20})[0], 0);
  EXPECT_EQ(dense<std::int32_t>(rsub_scalar, {I32::max()}, {0}, -2)[0], I32::max());
  EXPECT_EQ(dense<std::uint8_t>(add, {200}, {100})[0], 44);
  EXPECT_EQ(dense<std::uint8_t>(neg, {1}, {0})[0], 255);
}

TEST(Pointwise, NegativeScalarsWorkOnBytes) {
  EXPECT_EQ(dense<std::uint8_t>(add_scalar, {5}, {0}, -1)[0], 4);
  EXPECT_EQ(dense<std::uint8_t>(mul_scalar, {5}, {0}, -1)[0], 251);
}

TEST(Pointwise, AccumulatingIntegersWraps) {
  std::vector<std::int64_t> out{std::numeric_limits<std::int64_t>::max()};
  std::vector<std::int64_t> one{1};
  launch(test::cpu(), Pointwise{.op = copy,
                                .dtype = DType::i64,
                                .accumulate = Accumulate::yes,
                                .loop = test::loop_of({1}),
                                .out = {out.data(), {1}},
                                .in = {{one.data(), {1}}, {one.data(), {1}}, {one.data(), {1}}}});
  EXPECT_EQ(out[0], std::numeric_limits<std::int64_t>::min());
}

TEST(Pointwise, FloatingOpsRefuseIntegers) {
  EXPECT_EQ(test::message_of<DTypeError>([] { dense<std::int64_t>(PointwiseOp::exp, {1}, {1}); }),
            "this operation needs floating point, got i64; convert with .to(DType::f32)");
  EXPECT_THROW(dense<std::int32_t>(PointwiseOp::div, {1}, {1}), DTypeError);
}

TEST(Pointwise, RefusesBool) {
  bool value = true;
  const Operand operand{&value, {1}};
  EXPECT_EQ(test::message_of<DTypeError>([&] {
              launch(test::cpu(), Pointwise{.op = add,
                                            .dtype = DType::boolean,
                                            .loop = test::loop_of({1}),
                                            .out = operand,
                                            .in = {operand, operand, operand}});
            }),
            "arithmetic on bool is not defined; convert with .to(DType::i64)");
}

TEST(Pointwise, IntegerPowersWrap) {
  EXPECT_EQ((dense<std::int64_t>(PointwiseOp::pow, {2, -3, 7, 0, 2}, {62, 3, 0, 0, 64})),
            (std::vector<std::int64_t>{std::int64_t{1} << 62, -27, 1, 1, 0}));
  EXPECT_EQ((dense<std::uint8_t>(PointwiseOp::pow, {2, 3}, {9, 6})), (std::vector<std::uint8_t>{0, 729 % 256}));
}

// 16-bit arithmetic is f32 arithmetic, rounded once, with and without accumulation.
template <class T>
void expect_one_rounding() {
  for (const OpCase& op : kCases) {
    constexpr int kCount = 700;  // more than one block
    std::vector<T> a, b, c, out;
    std::vector<float> wide_a, wide_b, wide_c, wide_out(kCount);
    for (int i = 0; i < kCount; ++i) {
      a.push_back(T(0.3F + 0.01F * static_cast<float>(i % 97)));
      b.push_back(T(0.5F + 0.02F * static_cast<float>(i % 31)));
      c.push_back(T(0.25F + 0.03F * static_cast<float>(i % 13)));
      out.push_back(T(static_cast<float>(i % 7)));
      wide_a.push_back(a.back());
      wide_b.push_back(b.back());
      wide_c.push_back(c.back());
    }
    Pointwise kernel{.op = op.op,
                     .dtype = dtype_of<T>,
                     .accumulate = Accumulate::yes,
                     .loop = test::loop_of({kCount}),
                     .out = {out.data(), {1}},
                     .in = {{a.data(), {1}}, {b.data(), {1}}, {c.data(), {1}}},
                     .s = 0.75};
    Pointwise wide{.op = op.op,
                   .dtype = DType::f32,
                   .loop = test::loop_of({kCount}),
                   .out = {wide_out.data(), {1}},
                   .in = {{wide_a.data(), {1}}, {wide_b.data(), {1}}, {wide_c.data(), {1}}},
                   .s = 0.75};
    launch(test::cpu(), kernel);
    launch(test::cpu(), wide);
    for (std::size_t i = 0; i < kCount; ++i) {
      const T expected(static_cast<float>(i % 7) + wide_out[i]);
      ASSERT_EQ(out[i].bits(), expected.bits()) << op.name << " at " << i;
    }
  }
}

TEST(Pointwise, SixteenBitTypesAreComputedInF32AndRoundedOnce) {
  expect_one_rounding<BFloat16>();
  expect_one_rounding<Float16>();
}

}  // namespace
}  // namespace tandem::kernels
