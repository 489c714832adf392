#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher gradients_launcher<double>(PointwiseOp op) {
  return find_launcher<double, kSecondHalf, PointwiseOp::count_>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
