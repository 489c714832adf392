#include <tandem/kernels/pointwise.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/pointwise_rows.h>

namespace tandem::inline v0::kernels {

namespace {

// Tables indexed by PointwiseOp. An op added to the enum appears in them without being listed again.
template <class T, bool kAccumulate, std::size_t... kOps>
constexpr auto make_row_table(std::index_sequence<kOps...>) {
  return std::array{cpu::PointwiseRow<T>(&cpu::row_of<static_cast<PointwiseOp>(kOps), T, kAccumulate>)...};
}

// Returns null if the type does not have the op: integers end with kLastIntegerPointwise.
template <class T>
cpu::PointwiseRow<T> row_from_table(PointwiseOp op, Accumulate accumulate) {
  constexpr auto kEnd = std::is_integral_v<T> ? static_cast<std::size_t>(kLastIntegerPointwise) + 1
                                              : static_cast<std::size_t>(PointwiseOp::count_);
  static constexpr auto set = make_row_table<T, false>(std::make_index_sequence<kEnd>());
  static constexpr auto add = make_row_table<T, true>(std::make_index_sequence<kEnd>());
  const auto index = static_cast<std::size_t>(op);
  return index >= kEnd ? nullptr : accumulate == Accumulate::yes ? add[index] : set[index];
}
template <>
cpu::PointwiseRow<float> row_from_table(PointwiseOp op, Accumulate accumulate) {
  return TANDEM_BY_ISA(pointwise_row)(op, accumulate);
}

template <class T>
cpu::PointwiseRow<T> find_row(const Pointwise& kernel, Accumulate accumulate) {
  const cpu::PointwiseRow<T> row = row_from_table<T>(kernel.op, accumulate);
  check<DTypeError>(row != nullptr, "this operation needs floating point, got {}; convert with .to(DType::f32)",
                    kernel.dtype);
  return row;
}

template <class T>
void run_typed(const Pointwise& kernel) {
  const int last = kernel.loop.ndim - 1;
  const std::int64_t stride[3] = {kernel.in[0].strides[last], kernel.in[1].strides[last], kernel.in[2].strides[last]};
  const std::int64_t out_stride = kernel.out.strides[last];
  const bool limits = kernel.op == PointwiseOp::clamp;  // a limit beyond an integer type does not limit
  const T s = limits ? saturated<T>(kernel.s) : convert<T>(kernel.s);
  const T t = limits ? saturated<T>(kernel.t) : convert<T>(kernel.t);
  const auto row = find_row<T>(kernel, kernel.accumulate);
  cpu::for_each_row<T>(kernel.loop, {&kernel.out, &kernel.in[0], &kernel.in[1], &kernel.in[2]},
                       [&](T* const(&p)[4], std::int64_t count) {
                         const T* const in[3] = {p[1], p[2], p[3]};
                         row(p[0], out_stride, in, stride, s, t, count);
                       });
}

// 16-bit rows are widened a block at a time, go through the f32 row function, and are rounded once.
template <class T>
void run_16_bit(const Pointwise& kernel) {
  constexpr std::int64_t kBlock = 256;
  const int last = kernel.loop.ndim - 1;
  const int inputs = arity(kernel.op);
  const auto s = static_cast<float>(kernel.s);
  const auto t = static_cast<float>(kernel.t);
  const auto row = find_row<float>(kernel, Accumulate::no);
  const std::int64_t out_stride = kernel.out.strides[last];
  cpu::for_each_row<T>(kernel.loop, {&kernel.out, &kernel.in[0], &kernel.in[1], &kernel.in[2]},
                       [&](T* const(&p)[4], std::int64_t count) {
                         float wide[3][kBlock];
                         float result[kBlock];
                         constexpr std::int64_t kDense[3] = {1, 1, 1};
                         const float* const in[3] = {wide[0], wide[1], wide[2]};
                         for (std::int64_t first = 0; first < count; first += kBlock) {
                           const std::int64_t size = std::min(kBlock, count - first);
                           for (int k = 0; k < inputs; ++k) {
                             const std::int64_t stride = kernel.in[k].strides[last];
                             if (stride == 1) {
                               cpu::widen(wide[k], p[k + 1] + first, size);
                               continue;
                             }
                             for (std::int64_t i = 0; i < size; ++i) {
                               wide[k][i] = p[k + 1][(first + i) * stride];
                             }
                           }
                           row(result, 1, in, kDense, s, t, size);
                           if (out_stride == 1) {
                             if (kernel.accumulate == Accumulate::yes) {
                               float sums[kBlock];
                               cpu::widen(sums, p[0] + first, size);
                               TANDEM_BY_ISA(add_f32)(result, sums, size);
                             }
                             cpu::narrow(p[0] + first, result, size);
                             continue;
                           }
                           for (std::int64_t i = 0; i < size; ++i) {
                             T& target = p[0][(first + i) * out_stride];
                             target = T(kernel.accumulate == Accumulate::yes ? target + result[i] : result[i]);
                           }
                         }
                       });
}

}  // namespace

void run(OnCpu, Context&, const Pointwise& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      fail<DTypeError>("arithmetic on bool is not defined; convert with .to(DType::i64)");
    } else if constexpr (is_16_bit<T>) {
      run_16_bit<T>(kernel);
    } else {
      run_typed<T>(kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
