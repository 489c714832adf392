#include <tandem/kernels/reduce.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>

namespace tandem::inline v0::kernels {

namespace gpu {

/// Compiled for each type from reduce_kernels.h: see sources.cmake.
template <class T>
void reduce_on_gpu(const Queue& queue, const Reduce& kernel);

}  // namespace gpu

void run(OnCuda, Context& context, const Reduce& kernel) {
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() { gpu::reduce_on_gpu<T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
