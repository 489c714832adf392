#include <tandem/kernels/cpu/pointwise_rows.h>

namespace tandem::inline v0::kernels::cpu {

namespace {

constexpr auto kEnd = static_cast<PointwiseOp>(static_cast<int>(kLastIntegerPointwise) + 1);

}  // namespace

PointwiseRow<std::int64_t> pointwise_row(std::int64_t, PointwiseOp op, Accumulate accumulate) {
  return row_from_table<std::int64_t, kEnd>(op, accumulate);
}
PointwiseRow<std::int32_t> pointwise_row(std::int32_t, PointwiseOp op, Accumulate accumulate) {
  return row_from_table<std::int32_t, kEnd>(op, accumulate);
}
PointwiseRow<std::uint8_t> pointwise_row(std::uint8_t, PointwiseOp op, Accumulate accumulate) {
  return row_from_table<std::uint8_t, kEnd>(op, accumulate);
}

}  // namespace tandem::inline v0::kernels::cpu
