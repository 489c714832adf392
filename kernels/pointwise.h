#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

/// Element-wise functions of up to three inputs a, b, c and a scalar s. The names of gradient functions end in _grad;
/// their first input is the gradient g of the result.
enum class PointwiseOp : std::uint8_t {
  copy,         // a
  add,          // a + b
  sub,          // a - b
  mul,          // a * b
  add_scalar,   // a + s
  mul_scalar,   // a * s
  rsub_scalar,  // s - a
  neg,          // -a
  // The rest is for floating point only.
  div,          // a / b
  rdiv_scalar,  // s / a
  exp,
  log,
  sqrt,
  relu,  // max(a, 0); NaN stays NaN
  abs,
  pow_scalar,        // a ** s
  sqrt_grad,         // g, y = sqrt(x)   -> g / (2 y)
  relu_grad,         // g, y = relu(x)   -> y > 0 ? g : 0
  abs_grad,          // g, x             -> g * sign(x)
  pow_scalar_grad,   // g, x             -> g * s * x ** (s - 1)
  rdiv_scalar_grad,  // g, x            -> -g * s / x^2
  div_grad,          // g, a, b          -> -g * a / b^2, the gradient of a / b with respect to b
  equal,             // a == b ? 1 : 0, in the inputs' type
  count_
};

inline constexpr PointwiseOp kLastIntegerPointwise = PointwiseOp::neg;

/// The formulas, once for all backends.
template <PointwiseOp op, class T>
inline T pointwise(T a, [[maybe_unused]] T b, [[maybe_unused]] T c, [[maybe_unused]] T s) {
  using enum PointwiseOp;
  if constexpr (op == copy) return a;
  if constexpr (op == add) return wrapping_add(a, b);
  if constexpr (op == sub) return wrapping_sub(a, b);
  if constexpr (op == mul) return wrapping_mul(a, b);
  if constexpr (op == add_scalar) return wrapping_add(a, s);
  if constexpr (op == mul_scalar) return wrapping_mul(a, s);
  if constexpr (op == rsub_scalar) return wrapping_sub(s, a);
  if constexpr (op == neg) return std::is_integral_v<T> ? wrapping_sub(T(0), a) : static_cast<T>(-a);
  if constexpr (op == div) return a / b;
  if constexpr (op == rdiv_scalar) return s / a;
  if constexpr (op == exp) return std::exp(a);
  if constexpr (op == log) return std::log(a);
  if constexpr (op == sqrt) return std::sqrt(a);
  if constexpr (op == relu) return a < T(0) ? T(0) : a;
  if constexpr (op == abs) return std::abs(a);
  if constexpr (op == pow_scalar) return s == T(2) ? a * a : std::pow(a, s);
  if constexpr (op == sqrt_grad) return a / (T(2) * b);
  if constexpr (op == relu_grad) return b > T(0) ? a : T(0);
  if constexpr (op == abs_grad) return b > T(0) ? a : (b < T(0) ? -a : T(0));
  if constexpr (op == pow_scalar_grad) return s == T(0) ? T(0) : a * (s * std::pow(b, s - T(1)));
  if constexpr (op == rdiv_scalar_grad) return -a * (s / b / b);
  if constexpr (op == div_grad) return -a * (b / c / c);
  if constexpr (op == equal) return a == b ? T(1) : T(0);
}

/// out = op(inputs) or out += op(inputs). All operands have `dtype` and run along `loop` (stride 0 broadcasts).
/// `out` may be exactly one of the inputs; other overlaps are not allowed.
struct Pointwise {
  static constexpr const char* kName = "pointwise";
  PointwiseOp op;
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  Loop loop;
  Operand out;
  Operand in[3];  // unused ones point at in[0]
  double scalar = 0;
};

void run(OnCpu, Context& context, const Pointwise& kernel);

}  // namespace tandem::inline v0::kernels
