#include <tandem/kernels/cuda/cross_entropy.h>

#include <tandem/kernels/cuda/dispatch.h>

namespace tandem::inline v0::kernels {

void gpu::launch_one_class(const Queue& queue, const CrossEntropy& kernel) {
  for_floating(kernel.dtype, [&]<class T>() { launch_cross_entropy<false, T>(queue, kernel); });
}

void run(OnCuda, Context& context, const CrossEntropy& kernel) {
  const bool one_class = kernel.target.indices != nullptr && kernel.target.label_smoothing == 0;
  (one_class ? gpu::launch_one_class : gpu::launch_shares)(Queue(context), kernel);
}

}  // namespace tandem::inline v0::kernels
