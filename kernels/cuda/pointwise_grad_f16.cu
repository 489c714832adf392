#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher gradients_launcher<Half>(PointwiseOp op) {
  return find_launcher<Half, kSecondHalf, PointwiseOp::count_>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
