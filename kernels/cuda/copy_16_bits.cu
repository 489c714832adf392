#include <tandem/kernels/cuda/copy.h>

namespace tandem::inline v0::kernels::gpu {

template <>
void copy_to<BFloat16>(const Queue& queue, const Copy& kernel) {
  copy_from_any<BFloat16>(queue, kernel);
}
template <>
void copy_to<Half>(const Queue& queue, const Copy& kernel) {
  copy_from_any<Half>(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu
