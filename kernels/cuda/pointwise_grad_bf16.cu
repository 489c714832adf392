#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher gradients_launcher<BFloat16>(PointwiseOp op) {
  return find_launcher<BFloat16, kSecondHalf, PointwiseOp::count_>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
