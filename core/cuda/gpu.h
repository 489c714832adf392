#pragma once

#include <cstdint>
#include <mutex>

#include <tandem/core/cuda/fault.h>
#include <tandem/core/cuda_stream.h>

// Internal: what the process keeps of each GPU.

namespace tandem::inline v0::cuda {

/// One GPU in use. Made at first use, kept to the end of the process.
struct Gpu {
  int index;
  int multiprocessors;
  int capability;  // 90 for 9.0
  Stream stream;   // the default one
  Fault* fault;    // host memory that kernels write to
};

/// Throws DeviceError if there is no such GPU.
TANDEM_API const Gpu& gpu(int index);

/// The calling thread's stream: what current_stream() hands out.
TANDEM_API const Stream& current_stream_of(const Gpu& gpu) noexcept;
/// Its handle.
inline CUstream_st* current_handle(const Gpu& gpu) noexcept { return current_stream_of(gpu).handle(); }

/// Whoever captures a stream holds this, and whoever asks all streams of a GPU: that would break the capture off.
TANDEM_API std::mutex& capture_mutex() noexcept;

/// What gives cached memory of a GPU back when a kernel's scratch memory needs it: set by the layer that caches.
using ReleaseCache = void (*)(int gpu);
TANDEM_API void set_release_cache(ReleaseCache release) noexcept;
/// Calls it.
TANDEM_API void release_cache(int gpu);

}  // namespace tandem::inline v0::cuda
