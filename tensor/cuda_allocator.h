#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/memory_use.h>

namespace tandem::inline v0::detail {

/// Memory of a GPU that one storage has.
struct CudaBlock;

/// At least `bytes` on `device`, 256-byte aligned, for work on the calling thread's current stream. What was freed on
/// that stream comes first: in the order of the stream nobody uses it any more. Throws OutOfMemory with the account
/// when the GPU has no more, after giving back everything that was cached.
CudaBlock* cuda_allocate(std::size_t bytes, Device device);
std::byte* cuda_data(const CudaBlock* block) noexcept;
/// May be called while the GPU still works with it.
void cuda_free(CudaBlock* block) noexcept;
/// The calling thread's current stream works with the block too: it is not given out again before that is done.
void cuda_note_stream(CudaBlock* block);
/// Changes what it is in the account.
void cuda_count_as(CudaBlock* block, core::MemoryUse use);

}  // namespace tandem::inline v0::detail

namespace tandem::inline v0::cuda {

/// What tandem has asked a GPU for, in bytes.
struct MemoryStats {
  std::size_t total = 0;          // what the GPU has
  std::size_t free = 0;           // what is left for any process
  std::size_t in_use = 0;         // in tensors
  std::size_t peak = 0;           // the most that was in use at once since reset_peak_memory_stats()
  std::size_t cached = 0;         // free, and kept for the next tensor
  std::uint64_t allocations = 0;  // requests to the driver so far
  std::array<std::size_t, core::kMemoryUses> by_use{};  // of in_use, by MemoryUse
};

/// The account of a GPU. Throws DeviceError unless `device` is a GPU that can be used.
TANDEM_API MemoryStats memory_stats(Device device = Device(0));
/// Lets MemoryStats::peak begin anew. Throws DeviceError unless `device` is a GPU that can be used.
TANDEM_API void reset_peak_memory_stats(Device device = Device(0));
/// Gives what is cached back to the GPU, for other programs. Waits for the GPU. Throws DeviceError unless `device` is a
/// GPU that can be used.
TANDEM_API void empty_cache(Device device = Device(0));

}  // namespace tandem::inline v0::cuda
