#include <cstddef>
#include <utility>

#include <tandem/kernels/cpu/pointwise_rows.h>

// Element-wise functions of f32. Ops that are not in pointwise_math.cpp use the loop of the other types, compiled with
// the strides of every common layout. Results have the same bits on every instruction set.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

template <PointwiseOp op, bool kAccumulate>
void plain_row(float* out, std::int64_t out_stride, const float* const (&in)[3], const std::int64_t (&stride)[3],
               float s, float t, std::int64_t count) {
  row_of<op, float, kAccumulate, true>(out, out_stride, in, stride, s, t, count);
}

template <PointwiseOp op, bool kAccumulate>
constexpr PointwiseRow<float> row_or_null() {
  if constexpr (is_vector_math(op)) {
    return nullptr;
  } else {
    return &plain_row<op, kAccumulate>;
  }
}

template <bool kAccumulate, std::size_t... kOps>
PointwiseRow<float> find(std::index_sequence<kOps...>, PointwiseOp op) {
  static constexpr PointwiseRow<float> rows[] = {row_or_null<static_cast<PointwiseOp>(kOps), kAccumulate>()...};
  return rows[static_cast<std::size_t>(op)];
}

}  // namespace

PointwiseRow<float> pointwise_row(PointwiseOp op, Accumulate accumulate) {
  if (is_vector_math(op)) {
    return pointwise_math_row(op, accumulate);
  }
  constexpr auto kOps = std::make_index_sequence<static_cast<std::size_t>(PointwiseOp::count_)>{};
  return accumulate == Accumulate::yes ? find<true>(kOps, op) : find<false>(kOps, op);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
