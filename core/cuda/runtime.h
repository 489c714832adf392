#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Internal: how tandem calls CUDA, and waits for it: only through these functions. Every status is checked, and an
// error names the GPU's recent work.

namespace tandem::inline v0::cuda {

/// Throws DeviceError with CUDA's name and text for `status`, and with `call`; OutOfMemory if CUDA found no memory. For
/// an error caused by a kernel, the text also lists the last launches of this thread.
[[noreturn]] TANDEM_API void throw_status(cudaError_t status, const char* call);

/// Throws unless `status` is success: require(cudaEventRecord(...), "cudaEventRecord").
inline void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    throw_status(status, call);
  }
}

/// While this lives, its thread may make calls that would otherwise break off a capture of its own, such as allocations
/// on streams that are not captured.
class TANDEM_API OutsideOfCapture {
 public:
  [[nodiscard]] OutsideOfCapture();
  ~OutsideOfCapture();
  OutsideOfCapture(const OutsideOfCapture&) = delete;
  OutsideOfCapture& operator=(const OutsideOfCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Releases the cached memory of a GPU for a call that found none. CUDA takes memory of its own when it loads a
/// kernel's code, makes a graph or opens a library, and does not know of our cache.
TANDEM_API void make_room(int gpu);

/// Returns the status of `call()`. A call that found no memory on the GPU is made once more after make_room().
template <class Call, class FoundNone>
auto with_room(int gpu, Call&& call, FoundNone&& found_none) {
  const auto status = call();
  if (!found_none(status)) [[likely]] {
    return status;
  }
  make_room(gpu);
  return call();
}
/// Throws unless `call()` returns success, like require(), with_room().
template <class Call>
void require_room(int gpu, const char* name, Call&& call) {
  require(with_room(gpu, call, [](cudaError_t status) { return status == cudaErrorMemoryAllocation; }), name);
}
/// Throws OutOfMemory for a call of CUDA, or of a library, that found no memory in spite of make_room().
[[noreturn]] TANDEM_API void fail_without_room(std::string_view failure);

/// Remembers a launch of this thread for throw_status(). `name` must be a literal.
TANDEM_API void note_launch(const char* name) noexcept;

/// The last launches of this thread, most recent last: "pointwise, matmul, adam".
std::string last_launches();

/// Makes a GPU the current CUDA device for a scope.
class TANDEM_API GpuScope {
 public:
  [[nodiscard]] explicit GpuScope(int index);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  int saved_;
};

/// The GPU for which the calling thread last made a GpuScope; -1: none so far.
TANDEM_API int latest_gpu() noexcept;

/// Blocks until GPU `gpu` has finished the work that `stream` holds now, or has reached `event`. Work that other
/// threads queue in the meantime is not awaited. `call` names the program's call in messages. Throws DeviceError for a
/// failure of the GPU and after TANDEM_GPU_TIMEOUT seconds (600 by default, 0 for no limit). Queued GPU work takes
/// seconds at most; ten minutes is also the limit of PyTorch's collectives.
TANDEM_API void wait_for(int gpu, CUstream_st* stream, const char* call);
TANDEM_API void wait_for(int gpu, CUevent_st* event, const char* call);

/// The work that streams of a GPU held at construction, for a wait that may no longer query the streams themselves.
class QueuedWork {
 public:
  /// Throws DeviceError for a failure of the GPU, reported as found by `call`.
  QueuedWork(int gpu, std::span<CUstream_st* const> streams, const char* call);
  /// Blocks until that work is done, with the limits of wait_for(). Only events are queried, so no other thread's
  /// capture breaks off.
  void wait();

 private:
  struct DestroyEvent {
    void operator()(CUevent_st* event) const;
  };
  struct Busy {
    CUstream_st* stream;  // for messages
    std::unique_ptr<CUevent_st, DestroyEvent> end;
  };
  static Busy end_of(int gpu, CUstream_st* stream);

  int gpu_;
  const char* call_;
  std::vector<Busy> busy_;
};

}  // namespace tandem::inline v0::cuda
