#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0::detail {

/// 64-byte aligned host memory, from caches that keep what was freed: a training step asks the system for memory only
/// while it warms up. Sizes are rounded up to classes (multiples of 64 bytes, then four per doubling). Small blocks go
/// through a cache per thread, without locks; a block may be freed by another thread than allocated it. Of large blocks
/// no more stays idle than were ever in use at once.
/// Throws OutOfMemory with the account when the system refuses, after giving back everything that was cached.
TANDEM_API void* cpu_allocate(std::size_t bytes);
/// `bytes` as it was asked for.
TANDEM_API void cpu_free(void* memory, std::size_t bytes) noexcept;

}  // namespace tandem::inline v0::detail

namespace tandem::inline v0 {

/// What the allocator of host memory has asked the system for.
struct MemoryStats {
  std::size_t system_bytes = 0;          // held from the system, in use or cached
  std::uint64_t system_allocations = 0;  // requests to the system so far
};

/// Host memory of tensors and of the recorded graph.
TANDEM_API MemoryStats cpu_memory_stats() noexcept;
/// Gives cached blocks of the calling thread and of the process back to the system.
TANDEM_API void empty_cpu_cache() noexcept;

}  // namespace tandem::inline v0
