#include <tandem/kernels/cuda/copy.h>

namespace tandem::inline v0::kernels::gpu {

template <>
void copy_to<std::uint8_t>(const Queue& queue, const Copy& kernel) {
  copy_from_any<std::uint8_t>(queue, kernel);
}
template <>
void copy_to<bool>(const Queue& queue, const Copy& kernel) {
  copy_from_any<bool>(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu
