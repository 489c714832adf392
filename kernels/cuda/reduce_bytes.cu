#include <tandem/kernels/cuda/reduce_kernels.h>

namespace tandem::inline v0::kernels {

template void reduce_on_gpu<std::uint8_t>(const Queue&, const Reduce&);
template void reduce_on_gpu<bool>(const Queue&, const Reduce&);

}  // namespace tandem::inline v0::kernels
