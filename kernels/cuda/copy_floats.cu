#include <tandem/kernels/cuda/copy.h>

namespace tandem::inline v0::kernels::gpu {

template <>
void copy_to<float>(const Queue& queue, const Copy& kernel) {
  copy_from_any<float>(queue, kernel);
}
template <>
void copy_to<double>(const Queue& queue, const Copy& kernel) {
  copy_from_any<double>(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu
