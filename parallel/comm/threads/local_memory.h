#pragma once

#include <cstdint>

#include <tandem/core/device.h>
#include <tandem/parallel/comm/collective.h>

// Internal: functions shared by the sources of the local backend.

namespace tandem::inline v0::parallel {

inline bool on_gpu(const Buffers& buffers) { return buffers.device.type == DeviceType::cuda; }

inline std::int64_t bytes_of(const Collective& call, std::int64_t numel) {
  return numel * static_cast<std::int64_t>(item_size(call.dtype));
}

/// Queues a copy on the calling thread's stream of `own`, which is one of the two GPUs. The streams must be ordered
/// already.
void copy_on_gpu(Device own, void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes);

}  // namespace tandem::inline v0::parallel
