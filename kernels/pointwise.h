#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// Element-wise functions of up to three inputs a, b, c and two scalars s, t. The formulas are in pointwise_formulas.h.
/// The names of gradient functions end in _grad; their first input is the gradient g of the result.
enum class PointwiseOp : std::uint8_t {
  // These functions take every type but bool.
  copy,         // a
  add,          // a + b
  sub,          // a - b
  mul,          // a * b
  add_scalar,   // a + s
  mul_scalar,   // a * s
  rsub_scalar,  // s - a
  neg,          // -a
  abs,
  sign,     // -1, 0 or 1; NaN stays NaN
  relu,     // max(a, 0); NaN stays NaN
  clamp,    // min(max(a, s), t); NaN stays NaN
  maximum,  // the larger of a and b; NaN if one of them is
  minimum,
  equal,       // a == b ? 1 : 0, in the inputs' type; NaN equals NaN
  pow,         // a ** b; integers wrap around
  pow_scalar,  // a ** s
  // The functions below take floating point only.
  div,          // a / b
  rdiv_scalar,  // s / a
  exp,
  expm1,  // exp(a) - 1
  log,
  log1p,
  sqrt,
  rsqrt,
  sin,
  cos,
  tanh,
  floor,
  ceil,
  round,  // to nearest, ties to even
  sigmoid,
  silu,        // a * sigmoid(a)
  gelu,        // a * Phi(a)
  gelu_tanh,   // gelu approximated by tanh
  softplus,    // log(1 + exp(s a)) / s, and a where s a > t
  leaky_relu,  // a > 0 ? a : s a
  elu,         // a > 0 ? a : s (exp(a) - 1)
  // Gradient functions take g, then y (the result) or x (the input).
  abs_grad,           // g, x      g * sign(x)
  relu_grad,          // g, y      g where y > 0 or NaN
  clamp_grad,         // g, x      g where s <= x <= t
  extreme_grad,       // g, a, b   of maximum(a, b) with respect to a: g where a > b, g / 2 where equal; g where one is
                      // NaN
  div_grad,           // g, a, b   of a / b with respect to b
  rdiv_scalar_grad,   // g, x
  pow_grad_base,      // g, a, b   of a ** b with respect to a
  pow_grad_exponent,  // g, a, b   of a ** b with respect to b
  pow_scalar_grad,    // g, x
  expm1_grad,         // g, y
  log1p_grad,         // g, x
  sqrt_grad,          // g, y
  rsqrt_grad,         // g, y
  sin_grad,           // g, x
  cos_grad,           // g, x
  tanh_grad,          // g, y
  sigmoid_grad,       // g, y
  silu_grad,          // g, x
  gelu_grad,          // g, x
  gelu_tanh_grad,     // g, x
  softplus_grad,      // g, x
  leaky_relu_grad,    // g, x
  elu_grad,           // g, x
  scaled_product,     // a, b, c   s * a * b * c
  count_
};

inline constexpr PointwiseOp kLastIntegerPointwise = PointwiseOp::pow_scalar;

/// out = op(inputs) or out += op(inputs). All operands have `dtype` and run along `loop` (stride 0 broadcasts). 16-bit
/// types are computed in f32 and rounded once. `out` may be exactly one of the inputs; other overlaps are not allowed.
struct Pointwise {
  static constexpr const char* kName = "pointwise";
  PointwiseOp op;
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  Loop loop;
  Operand out;
  Operand in[3];  // unused inputs point at in[0]
  double s = 0;
  double t = 0;
};
void run(OnCpu, Context& context, const Pointwise& kernel);
void run(OnCuda, Context& context, const Pointwise& kernel);

}  // namespace tandem::inline v0::kernels
