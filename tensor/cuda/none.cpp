#include <tandem/core/check.h>
#include <tandem/core/cuda.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/idle_gpus.h>

// The GPU memory functions of a build without CUDA: no GPU exists, so memory can be neither counted nor pinned.

namespace tandem::inline v0 {

namespace {
[[noreturn]] void fail_without(const char* what) { fail<DeviceError>("{}: {}", what, cuda::why_unavailable()); }
}  // namespace

namespace detail {

core::Ref<Storage> allocate_pinned(std::size_t) { fail_without("pin_memory"); }
bool is_pinned(const void*) noexcept { return false; }
void note_pinned_use(const void*, const cuda::Stream&) {}
bool cuda_is_used(int) noexcept { return false; }

}  // namespace detail

namespace cuda {

MemoryStats memory_stats(Device) { fail_without("cuda::memory_stats"); }
void reset_peak_memory_stats(Device) { fail_without("cuda::reset_peak_memory_stats"); }
void empty_cache(Device) { fail_without("cuda::empty_cache"); }

}  // namespace cuda

}  // namespace tandem::inline v0
