#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/storage.h>

namespace tandem::inline v0::detail {

/// A block of GPU memory that belongs to one storage.
struct CudaBlock;

/// Allocates at least `bytes` on `device`, 256-byte aligned, for work on the calling thread's current stream. Blocks
/// freed on that stream are reused first: work queued later on the stream runs after the block's last use. When the GPU
/// has no memory left, the call releases all cached memory and tries again; if that fails too, it throws OutOfMemory
/// with the memory statistics.
CudaBlock* cuda_allocate(std::size_t bytes, Device device);
std::byte* cuda_data(const CudaBlock* block) noexcept;
/// Frees a block. The GPU may still be working with it.
void cuda_free(CudaBlock* block) noexcept;
/// Records that the calling thread's current stream uses the block too: the block is not reused before that work is
/// done.
void cuda_note_stream(CudaBlock* block);
/// Changes the category of the block in the statistics.
void cuda_count_as(CudaBlock* block, core::MemoryUse use);

/// Allocates uninitialised page-locked host memory, which a GPU can copy to and from while the host continues, from a
/// cache. Throws DeviceError without a GPU, OutOfMemory when the system has no
/// more.
core::Ref<Storage> allocate_pinned(std::size_t bytes);
/// Whether an address lies in such memory.
bool is_pinned(const void* data) noexcept;
/// Records that `stream` uses the block at `data`: the block is not reused before the work queued there now is done.
void note_pinned_use(const void* data, const cuda::Stream& stream);

}  // namespace tandem::inline v0::detail

namespace tandem::inline v0::cuda {

/// Memory of one GPU, in bytes.
struct MemoryStats {
  std::size_t total = 0;                                // total memory of the GPU
  std::size_t free = 0;                                 // available to any process
  std::size_t in_use = 0;                               // used by tensors
  std::size_t peak = 0;                                 // maximum of in_use since reset_peak_memory_stats()
  std::size_t cached = 0;                               // freed, and kept for later tensors
  std::uint64_t allocations = 0;                        // number of requests to the driver so far
  std::array<std::size_t, core::kMemoryUses> by_use{};  // in_use split by MemoryUse
};

/// Memory statistics of a GPU. Throws DeviceError unless `device` is a usable GPU.
TANDEM_API MemoryStats memory_stats(Device device = Device(0));
/// Resets MemoryStats::peak to the current use. Throws DeviceError unless `device` is a usable GPU.
TANDEM_API void reset_peak_memory_stats(Device device = Device(0));
/// Returns cached memory to the GPU, for other programs. Waits for the GPU. Throws DeviceError unless `device` is a
/// usable GPU.
TANDEM_API void empty_cache(Device device = Device(0));

}  // namespace tandem::inline v0::cuda
