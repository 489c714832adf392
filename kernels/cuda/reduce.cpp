#include <tandem/kernels/cuda/dispatch.h>
#include <tandem/kernels/cuda/reduce_by_type.h>

namespace tandem::inline v0::kernels {

void run(OnCuda, Context& context, const Reduce& kernel) {
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() { reduce_on_gpu<T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
