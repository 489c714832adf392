#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0::detail {

/// Allocates 64-byte aligned host memory from caches that keep freed blocks: a training step asks the system for memory
/// only while it warms up. Sizes are rounded up to classes (multiples of 64 bytes, then four per doubling). Small
/// blocks go through a per-thread cache without locks; any thread may free a block. The idle large blocks never exceed
/// the largest amount that was in use at once. When the system refuses, the call returns all cached memory and tries
/// again; if that fails too, it throws OutOfMemory with the memory statistics.
TANDEM_API void* cpu_allocate(std::size_t bytes);
/// Frees `memory`; `bytes` is the size that was requested.
TANDEM_API void cpu_free(void* memory, std::size_t bytes) noexcept;

}  // namespace tandem::inline v0::detail

namespace tandem::inline v0 {

/// Memory that the host allocator has requested from the system.
struct MemoryStats {
  std::size_t system_bytes = 0;          // bytes obtained from the system, in use or cached
  std::uint64_t system_allocations = 0;  // number of requests to the system so far
};

/// Statistics of the host memory used by tensors and by the recorded graph.
TANDEM_API MemoryStats cpu_memory_stats() noexcept;
/// Returns cached blocks of the calling thread and of the process to the system.
TANDEM_API void empty_cpu_cache() noexcept;

}  // namespace tandem::inline v0
