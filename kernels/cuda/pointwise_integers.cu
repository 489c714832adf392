#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

namespace {
constexpr auto kEnd = static_cast<PointwiseOp>(static_cast<int>(kLastIntegerPointwise) + 1);
}  // namespace

template <>
PointwiseLauncher integer_launcher<std::int64_t>(PointwiseOp op) {
  return find_launcher<std::int64_t, PointwiseOp::copy, kEnd>(op);
}
template <>
PointwiseLauncher integer_launcher<std::int32_t>(PointwiseOp op) {
  return find_launcher<std::int32_t, PointwiseOp::copy, kEnd>(op);
}
template <>
PointwiseLauncher integer_launcher<std::uint8_t>(PointwiseOp op) {
  return find_launcher<std::uint8_t, PointwiseOp::copy, kEnd>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
