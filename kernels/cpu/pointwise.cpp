#include <tandem/kernels/pointwise.h>

#include <array>
#include <cstddef>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

namespace {

// How many inputs an op reads; the others are not touched.
constexpr int arity(PointwiseOp op) {
  using enum PointwiseOp;
  switch (op) {
    case add:
    case sub:
    case mul:
    case div:
    case sqrt_grad:
    case relu_grad:
    case abs_grad:
    case pow_scalar_grad:
    case rdiv_scalar_grad:
    case equal: return 2;
    case div_grad: return 3;
    default: return 1;
  }
}

// One row. The strides are compile-time constants on the paths that matter, so that GCC vectorises them; `ivdep` is
// true because operands are disjoint or exactly equal.
template <PointwiseOp op, class T, bool kAccumulate>
void row(T* out, std::int64_t out_stride, const T* const (&in)[3], const std::int64_t (&stride)[3], T s,
         std::int64_t count) {
  constexpr int kArity = arity(op);
  const auto body = [&](auto so, auto sa, auto sb, auto sc) {
    const T* a = in[0];
    const T* b = kArity > 1 ? in[1] : a;
    const T* c = kArity > 2 ? in[2] : a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = pointwise<op, T>(a[i * sa], b[i * sb], c[i * sc], s);
      T& target = out[i * so];
      target = kAccumulate ? wrapping_add(target, value) : value;
    }
  };
  constexpr std::integral_constant<std::int64_t, 1> one;
  constexpr std::integral_constant<std::int64_t, 0> zero;
  const bool a_dense = out_stride == 1 && stride[0] == 1;
  const bool c_dense = kArity < 3 || stride[2] == 1;
  if (a_dense && c_dense && (kArity < 2 || stride[1] == 1)) {
    body(one, one, one, one);
  } else if (kArity == 2 && a_dense && stride[1] == 0) {
    body(one, one, zero, one);
  } else if (kArity == 2 && out_stride == 1 && stride[0] == 0 && stride[1] == 1) {
    body(one, zero, one, one);
  } else {
    body(out_stride, stride[0], stride[kArity > 1 ? 1 : 0], stride[kArity > 2 ? 2 : 0]);
  }
}

template <PointwiseOp op, class T>
void run_op(const Pointwise& kernel) {
  const int last = kernel.loop.ndim - 1;
  const std::int64_t stride[3] = {kernel.in[0].strides[last], kernel.in[1].strides[last], kernel.in[2].strides[last]};
  const std::int64_t out_stride = kernel.out.strides[last];
  const T s = convert<T>(kernel.scalar);
  cpu::for_each_row<T>(kernel.loop, {&kernel.out, &kernel.in[0], &kernel.in[1], &kernel.in[2]},
                       [&](T* const(&p)[4], std::int64_t count) {
                         const T* const in[3] = {p[1], p[2], p[3]};
                         if (kernel.accumulate == Accumulate::yes) {
                           row<op, T, true>(p[0], out_stride, in, stride, s, count);
                         } else {
                           row<op, T, false>(p[0], out_stride, in, stride, s, count);
                         }
                       });
}

// Function tables indexed by PointwiseOp, so that an op added to the enum is there without being listed again.
template <class T, std::size_t... kOps>
constexpr auto make_table(std::index_sequence<kOps...>) {
  return std::array<void (*)(const Pointwise&), sizeof...(kOps)>{&run_op<static_cast<PointwiseOp>(kOps), T>...};
}

constexpr auto kFloatOps = std::make_index_sequence<static_cast<std::size_t>(PointwiseOp::count_)>{};
constexpr auto kIntegerOps = std::make_index_sequence<static_cast<std::size_t>(kLastIntegerPointwise) + 1>{};

template <class T, class Ops>
void run_typed(const Pointwise& kernel, Ops ops) {
  static constexpr auto table = make_table<T>(Ops{});
  const auto index = static_cast<std::size_t>(kernel.op);
  check<DTypeError>(index < ops.size(), "this operation needs f32 or f64, got {}; convert with .to(DType::f32)",
                    kernel.dtype);
  table[index](kernel);
}

}  // namespace

void run(OnCpu, Context&, const Pointwise& kernel) {
  switch (kernel.dtype) {
    case DType::f32: return run_typed<float>(kernel, kFloatOps);
    case DType::f64: return run_typed<double>(kernel, kFloatOps);
    case DType::i64: return run_typed<std::int64_t>(kernel, kIntegerOps);
    case DType::i32: return run_typed<std::int32_t>(kernel, kIntegerOps);
    case DType::u8: return run_typed<std::uint8_t>(kernel, kIntegerOps);
    case DType::boolean: fail<DTypeError>("arithmetic on bool is not defined; convert with .to(DType::i64)");
  }
}

}  // namespace tandem::inline v0::kernels
