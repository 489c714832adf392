#pragma once

#include <cstddef>

#include <tandem/core/cuda_stream.h>
#include <tandem/tensor/storage.h>

// Internal: page-locked host memory, which a GPU copies to and from while the host goes on.

namespace tandem::inline v0::detail {

/// Uninitialised, from a cache. Throws DeviceError without a GPU, OutOfMemory when the system has no more.
core::Ref<Storage> allocate_pinned(std::size_t bytes);
/// Whether an address is in such memory.
bool is_pinned(const void* data) noexcept;
/// `stream` works with the block at `data` until what is queued there now is done: it is not given out again before.
void note_pinned_use(const void* data, const cuda::Stream& stream);

}  // namespace tandem::inline v0::detail
