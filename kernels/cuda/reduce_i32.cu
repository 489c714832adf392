#include <tandem/kernels/cuda/reduce_kernels.h>

namespace tandem::inline v0::kernels {

template void reduce_on_gpu<std::int32_t>(const Queue&, const Reduce&);

}  // namespace tandem::inline v0::kernels
