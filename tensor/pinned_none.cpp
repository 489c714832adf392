#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/tensor/pinned.h>

// A build without CUDA has nobody to pin memory for.

namespace tandem::inline v0::detail {

core::Ref<Storage> allocate_pinned(std::size_t) { fail<DeviceError>("pin_memory: {}", cuda::why_unavailable()); }
bool is_pinned(const void*) noexcept { return false; }
void note_pinned_use(const void*, const cuda::Stream&) {}

}  // namespace tandem::inline v0::detail
