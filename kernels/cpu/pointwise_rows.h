#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/pointwise_formulas.h>

// One row of a Pointwise kernel, for every op and element type. Row functions of f32 are compiled once per instruction
// set, in isa/, the others in pointwise.cpp.

namespace tandem::inline v0::kernels::cpu {

/// Computes out[i] = op(in[0][i], ...) or out[i] += it, along a row with these strides.
template <class T>
using PointwiseRow = void (*)(T* out, std::int64_t out_stride, const T* const (&in)[3], const std::int64_t (&stride)[3],
                              T s, T t, std::int64_t count);

TANDEM_FOR_EACH_ISA(PointwiseRow<float> pointwise_row(PointwiseOp op, Accumulate accumulate);
                    PointwiseRow<float> pointwise_math_row(PointwiseOp op, Accumulate accumulate);)

/// True if f32 has a vector formula for that op (pointwise_math_row), because the op has an exponential, a logarithm, a
/// power or a sine.
[[gnu::always_inline]] constexpr bool is_vector_math(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::exp:
    case PointwiseOp::expm1:
    case PointwiseOp::log:
    case PointwiseOp::log1p:
    case PointwiseOp::tanh:
    case PointwiseOp::sigmoid:
    case PointwiseOp::pow:
    case PointwiseOp::pow_scalar:
    case PointwiseOp::pow_grad_base:
    case PointwiseOp::pow_grad_exponent:
    case PointwiseOp::pow_scalar_grad:
    case PointwiseOp::sin:
    case PointwiseOp::cos:
    case PointwiseOp::sin_grad:
    case PointwiseOp::cos_grad:
    case PointwiseOp::silu:
    case PointwiseOp::gelu:
    case PointwiseOp::gelu_tanh:
    case PointwiseOp::softplus:
    case PointwiseOp::elu:
    case PointwiseOp::silu_grad:
    case PointwiseOp::gelu_grad:
    case PointwiseOp::gelu_tanh_grad:
    case PointwiseOp::softplus_grad:
    case PointwiseOp::elu_grad: return true;
    default: return false;
  }
}

// Strides are compile-time constants on the paths that matter (for all ops, with kEveryOp), so that GCC vectorises
// them. `ivdep` is true because operands are disjoint or exactly equal. Inlined by force: see per_isa.h.
template <PointwiseOp op, class T, bool kAccumulate, bool kEveryOp = false>
[[gnu::always_inline]] inline void row_of(T* out, std::int64_t out_stride, const T* const (&in)[3],
                                          const std::int64_t (&stride)[3], T s, T t, std::int64_t count) {
  constexpr int kArity = arity(op);
  const auto body = [&](auto so, auto sa, auto sb, auto sc) __attribute__((always_inline)) {
    const T* a = in[0];
    const T* b = kArity > 1 ? in[1] : a;
    const T* c = kArity > 2 ? in[2] : a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = pointwise<op, T>(a[i * sa], b[i * sb], c[i * sc], s, t);
      T& target = out[i * so];
      target = kAccumulate ? wrapping_add(target, value) : value;
    }
  };
  constexpr std::integral_constant<std::int64_t, 1> one;
  constexpr std::integral_constant<std::int64_t, 0> zero;
  if constexpr (kEveryOp || is_cheap(op)) {
    const bool a_dense = out_stride == 1 && stride[0] == 1;
    const bool c_dense = kArity < 3 || stride[2] == 1;
    if (a_dense && c_dense && (kArity < 2 || stride[1] == 1)) {
      return body(one, one, one, one);
    }
    if (kArity == 2 && a_dense && stride[1] == 0) {
      return body(one, one, zero, one);
    }
    if (kArity == 2 && out_stride == 1 && stride[0] == 0 && stride[1] == 1) {
      return body(one, zero, one, zero);
    }
  }
  body(out_stride, stride[0], stride[kArity > 1 ? 1 : 0], stride[kArity > 2 ? 2 : 0]);
}

}  // namespace tandem::inline v0::kernels::cpu
