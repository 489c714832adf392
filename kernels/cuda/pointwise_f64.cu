#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher arithmetic_launcher<double>(PointwiseOp op) {
  return find_launcher<double, PointwiseOp::copy, kFirstFunction>(op);
}
template <>
PointwiseLauncher functions_launcher<double>(PointwiseOp op) {
  return find_launcher<double, kFirstFunction, kSecondHalf>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
