#pragma once

#include <cstddef>

#include <tandem/core/cuda_stream.h>
#include <tandem/tensor/storage.h>

// Internal: page-locked host memory, which a GPU can copy to and from while the host continues.

namespace tandem::inline v0::detail {

/// Allocates uninitialised memory from a cache. Throws DeviceError without a GPU, OutOfMemory when the system has no
/// more.
core::Ref<Storage> allocate_pinned(std::size_t bytes);
/// Whether an address lies in such memory.
bool is_pinned(const void* data) noexcept;
/// Records that `stream` uses the block at `data`: the block is not reused before the work queued there now is done.
void note_pinned_use(const void* data, const cuda::Stream& stream);

}  // namespace tandem::inline v0::detail
