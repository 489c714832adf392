#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher functions_launcher<BFloat16>(PointwiseOp op) {
  return find_launcher<BFloat16, kFirstFunction, kSecondHalf>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
