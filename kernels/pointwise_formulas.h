#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>

#include <tandem/core/export.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/pointwise.h>

// The formulas of PointwiseOp, shared by all backends. Inlined by force, because CPU kernels compile them for more than
// one instruction set.

namespace tandem::inline v0::kernels {

namespace formula {

template <class T>
[[gnu::always_inline]] TANDEM_HD inline T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// x ** n by squaring. A negative exponent gives 1, -1 or 0, like integer division.
template <class T>
[[gnu::always_inline]] TANDEM_HD inline T whole_pow(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      const bool odd = exponent % 2 != 0;
      return base == 1 ? T(1) : base == T(-1) ? (odd ? T(-1) : T(1)) : T(0);
    }
  }
  T result = 1;
  for (; exponent != 0; exponent = static_cast<T>(exponent / 2)) {
    result = exponent % 2 != 0 ? wrapping_mul(result, base) : result;
    base = wrapping_mul(base, base);
  }
  return result;
}

// GELU is x Phi(x), or its tanh approximation (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
template <class T>
[[gnu::always_inline]] TANDEM_HD inline T normal_cdf(T x) {
  return T(0.5) * std::erfc(x * T(-1 / std::numbers::sqrt2));  // 1 + erf would cancel far below 0
}
template <class T>
inline constexpr T kNormalFactor = T(0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);  // 1 / sqrt(2 pi)
template <class T>
[[gnu::always_inline]] TANDEM_HD inline T normal_pdf(T x) {
  return std::exp(x * x * T(-0.5)) * kNormalFactor<T>;
}
template <class T>
inline constexpr T kGeluScale = T(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
template <class T>
inline constexpr T kGeluCubic = T(0.044715);
template <class T>
[[gnu::always_inline]] TANDEM_HD inline T gelu_tanh_cdf(
    T x) {  // (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel
  return sigmoid(kGeluScale<T> * (x + kGeluCubic<T> * x * x * x));
}

}  // namespace formula

/// The result of `op` for one element. T is an integer type, float or double.
template <PointwiseOp op, class T>
[[gnu::always_inline]] TANDEM_HD inline T pointwise(T a, [[maybe_unused]] T b, [[maybe_unused]] T c,
                                                    [[maybe_unused]] T s, [[maybe_unused]] T t) {
  using enum PointwiseOp;
  using namespace formula;
  if constexpr (op == copy) return a;
  if constexpr (op == add) return wrapping_add(a, b);
  if constexpr (op == sub) return wrapping_sub(a, b);
  if constexpr (op == mul) return wrapping_mul(a, b);
  if constexpr (op == add_scalar) return wrapping_add(a, s);
  if constexpr (op == mul_scalar) return wrapping_mul(a, s);
  if constexpr (op == rsub_scalar) return wrapping_sub(s, a);
  if constexpr (op == neg) return std::is_integral_v<T> ? wrapping_sub(T(0), a) : static_cast<T>(-a);
  if constexpr (op == PointwiseOp::abs) {
    if constexpr (std::is_floating_point_v<T>) return std::abs(a);
    return a < T(0) ? wrapping_sub(T(0), a) : a;
  }
  if constexpr (op == sign) return a > T(0) ? T(1) : (a < T(0) ? static_cast<T>(-1) : (a == T(0) ? T(0) : a));
  if constexpr (op == relu) return a < T(0) ? T(0) : a;
  if constexpr (op == clamp) return a < s ? (t < s ? t : s) : (a > t ? t : a);
  if constexpr (op == maximum) return a > b || a != a ? a : b;
  if constexpr (op == minimum) return a < b || a != a ? a : b;
  if constexpr (op == equal) return a == b || (a != a && b != b) ? T(1) : T(0);
  if constexpr (op == div) return a / b;
  if constexpr (op == rdiv_scalar) return s / a;
  if constexpr (op == PointwiseOp::pow || op == pow_scalar) {
    const T exponent = op == pow_scalar ? s : b;
    if constexpr (std::is_integral_v<T>) {
      return whole_pow(a, exponent);
    } else {
      return exponent == T(2) ? a * a : std::pow(a, exponent);
    }
  }
  if constexpr (op == PointwiseOp::exp) return std::exp(a);
  if constexpr (op == PointwiseOp::expm1) return std::expm1(a);
  if constexpr (op == PointwiseOp::log) return std::log(a);
  if constexpr (op == PointwiseOp::log1p) return std::log1p(a);
  if constexpr (op == PointwiseOp::sqrt) return std::sqrt(a);
  if constexpr (op == rsqrt) return T(1) / std::sqrt(a);
  if constexpr (op == PointwiseOp::sin) return std::sin(a);
  if constexpr (op == PointwiseOp::cos) return std::cos(a);
  if constexpr (op == PointwiseOp::tanh) return std::tanh(a);
  if constexpr (op == PointwiseOp::floor) return std::floor(a);
  if constexpr (op == PointwiseOp::ceil) return std::ceil(a);
  if constexpr (op == PointwiseOp::round) return std::nearbyint(a);
  if constexpr (op == PointwiseOp::sigmoid) return formula::sigmoid(a);
  if constexpr (op == silu) return a / (T(1) + std::exp(-a));
  if constexpr (op == gelu) return a * normal_cdf(a);
  if constexpr (op == gelu_tanh) return a * gelu_tanh_cdf(a);
  if constexpr (op == softplus) {
    const T x = a * s;  // whose exponential may be infinite
    return x > t ? a : ((x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)))) / s;
  }
  if constexpr (op == leaky_relu) return a > T(0) ? a : a * s;
  if constexpr (op == elu) return a > T(0) ? a : s * std::expm1(a);
  if constexpr (op == abs_grad) return b > T(0) ? a : (b < T(0) ? -a : b == T(0) ? T(0) : b);
  if constexpr (op == relu_grad) return b <= T(0) ? T(0) : a;
  if constexpr (op == clamp_grad) return b >= s && b <= t ? a : T(0);
  if constexpr (op == extreme_grad) return b < c ? T(0) : (b == c ? a * T(0.5) : a);
  if constexpr (op == div_grad) return -a * (b / c / c);
  if constexpr (op == rdiv_scalar_grad) return -a * (s / b / b);
  if constexpr (op == pow_grad_base) return c == T(0) ? T(0) : a * (c * std::pow(b, c - T(1)));
  if constexpr (op == pow_grad_exponent) return b == T(0) && c >= T(0) ? T(0) : a * (std::pow(b, c) * std::log(b));
  if constexpr (op == pow_scalar_grad) return s == T(0) ? T(0) : a * (s * std::pow(b, s - T(1)));
  if constexpr (op == expm1_grad) return a * (b + T(1));
  if constexpr (op == log1p_grad) return a / (T(1) + b);
  if constexpr (op == sqrt_grad) return a / (T(2) * b);
  if constexpr (op == rsqrt_grad) return T(-0.5) * a * (b * b * b);
  if constexpr (op == sin_grad) return a * std::cos(b);
  if constexpr (op == cos_grad) return -a * std::sin(b);
  if constexpr (op == tanh_grad) return a * (T(1) - b * b);
  if constexpr (op == sigmoid_grad) return a * ((T(1) - b) * b);
  if constexpr (op == silu_grad) return a * formula::sigmoid(b) * (T(1) + b * (T(1) - formula::sigmoid(b)));
  if constexpr (op == gelu_grad) return a * (normal_cdf(b) + b * normal_pdf(b));
  if constexpr (op == gelu_tanh_grad) {
    const T y = gelu_tanh_cdf(b);
    const T slope = kGeluScale<T> * (T(1) + T(3) * kGeluCubic<T> * b * b);
    return a * y * (T(1) + b * (T(1) - y) * slope);
  }
  if constexpr (op == softplus_grad) return b * s > t ? a : a * formula::sigmoid(b * s);
  if constexpr (op == leaky_relu_grad) return b > T(0) ? a : a * s;
  if constexpr (op == elu_grad) return b > T(0) ? a : a * (s * std::exp(b));
  if constexpr (op == scaled_product) return a * s * b * c;
}

/// Number of inputs that an op reads; it does not touch the others.
TANDEM_HD constexpr int arity(PointwiseOp op) {
  using enum PointwiseOp;
  switch (op) {
    case extreme_grad:
    case div_grad:
    case pow_grad_base:
    case pow_grad_exponent:
    case scaled_product: return 3;
    case add:
    case sub:
    case mul:
    case maximum:
    case minimum:
    case equal:
    case div:
    case PointwiseOp::pow: return 2;
    default: return op >= abs_grad ? 2 : 1;
  }
}

/// True if a result costs a few instructions that vectorise, which is worth a loop of its own for every common layout.
constexpr bool is_cheap(PointwiseOp op) {
  using enum PointwiseOp;
  return op <= equal || op == pow_scalar || op == div || op == rdiv_scalar || op == PointwiseOp::sqrt ||
         op == abs_grad || op == relu_grad || op == sqrt_grad || op == div_grad || op == scaled_product;
}

}  // namespace tandem::inline v0::kernels
