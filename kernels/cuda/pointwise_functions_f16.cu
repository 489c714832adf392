#include <tandem/kernels/cuda/pointwise.h>

namespace tandem::inline v0::kernels::gpu {

template <>
PointwiseLauncher functions_launcher<Half>(PointwiseOp op) {
  return find_launcher<Half, kFirstFunction, kSecondHalf>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
