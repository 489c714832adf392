#include <tandem/kernels/cuda/cross_entropy.h>

#include <tandem/kernels/cuda/dispatch.h>

namespace tandem::inline v0::kernels {

void gpu::launch_shares(const Queue& queue, const CrossEntropy& kernel) {
  for_floating(kernel.dtype, [&]<class T>() { launch_cross_entropy<true, T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
