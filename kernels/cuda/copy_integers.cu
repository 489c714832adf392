#include <tandem/kernels/cuda/copy.h>

namespace tandem::inline v0::kernels::gpu {

template <>
void copy_to<std::int64_t>(const Queue& queue, const Copy& kernel) {
  copy_from_any<std::int64_t>(queue, kernel);
}
template <>
void copy_to<std::int32_t>(const Queue& queue, const Copy& kernel) {
  copy_from_any<std::int32_t>(queue, kernel);
}

}  // namespace tandem::inline v0::kernels::gpu
