#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher arithmetic_launcher<float>(PointwiseOp op) {
  return find_launcher<float, PointwiseOp::copy, kFirstFunction>(op);
}
template <>
PointwiseLauncher functions_launcher<float>(PointwiseOp op) {
  return find_launcher<float, kFirstFunction, kSecondHalf>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
