#pragma once

#include <cstdint>

#include <tandem/core/device.h>
#include <tandem/parallel/comm/collective.h>

// Internal: what the parts of the local backend share.

namespace tandem::inline v0::parallel {

inline bool on_gpu(const Buffers& buffers) { return buffers.device.type == DeviceType::cuda; }

inline std::int64_t bytes_of(const Collective& call, std::int64_t numel) {
  return numel * static_cast<std::int64_t>(item_size(call.dtype));
}

/// Queued on the calling thread's stream of `own`, one of both GPUs. All streams are in order already.
void copy_on_gpu(Device own, void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes);

}  // namespace tandem::inline v0::parallel
