#pragma once

#include <cstdint>
#include <mutex>

#include <tandem/core/cuda/fault.h>
#include <tandem/core/cuda_stream.h>

// Internal: the process-wide state of each GPU.

namespace tandem::inline v0::cuda {

/// One GPU in use. Made at first use and kept until the process ends.
struct Gpu {
  int index;
  int multiprocessors;
  int capability;  // compute capability: 90 means 9.0
  Stream stream;   // the default stream
  Fault* fault;    // host memory to which kernels write
};

/// The state of GPU `index`. Throws DeviceError if the GPU does not exist.
TANDEM_API const Gpu& gpu(int index);

/// The calling thread's stream, as returned by current_stream().
TANDEM_API const Stream& current_stream_of(const Gpu& gpu) noexcept;
/// The handle of the calling thread's stream.
inline CUstream_st* current_handle(const Gpu& gpu) noexcept { return current_stream_of(gpu).handle(); }

/// Held by a thread that captures a stream and by a thread that queries all streams of a GPU: the query would break off
/// the capture.
TANDEM_API std::mutex& capture_mutex() noexcept;

/// Releases cached memory of a GPU when a kernel needs scratch memory. The layer that caches memory sets the function.
using ReleaseCache = void (*)(int gpu);
TANDEM_API void set_release_cache(ReleaseCache release) noexcept;
/// Calls the function that set_release_cache() stored.
TANDEM_API void release_cache(int gpu);

}  // namespace tandem::inline v0::cuda
