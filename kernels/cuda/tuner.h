#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <cuda_runtime_api.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/function_ref.h>
#include <tandem/kernels/cuda/launch/queue.h>

// Internal: how long the kernels of a library take.

namespace tandem::inline v0::kernels::gpu {

/// One run: the number of its kernels, and its time.
struct Measured {
  int kernels;
  double time_us;
};

/// Memory like that of a result: so many bytes, at addresses that are multiples of a power of two.
struct ResultMemory {
  std::size_t bytes;
  std::int64_t alignment;
};

/// Runs kernels on a stream of its own, with scratch memory for their results. Meanwhile the calling thread's stream is
/// this one.
class Tuner {
 public:
  /// Measures behind what `queue` has been given, with `workspace` bytes at hand. Throws OutOfMemory.
  Tuner(const Queue& queue, const ResultMemory& result, std::size_t workspace);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Starts one run on a queue, with its result at `out`; false if that cannot be.
  using Run = core::FunctionRef<bool(const Queue& queue, void* out)>;
  /// The kernels of a run and the median of its times, or nothing if it cannot be. Waits for the GPU.
  std::optional<Measured> measure(Run run);
  /// The median of a run's times in microseconds, or nothing if it cannot be. Waits for the GPU.
  std::optional<double> time_us(Run run);

 private:
  bool warm_up(Run run) { return run(queue_, result()); }
  std::optional<double> median_us(Run run);
  void* result() const { return static_cast<std::byte*>(result_) + offset_; }
  // Captures a run; how many kernels it has.
  std::optional<int> count_kernels(Run run);
  void* allocate(std::size_t bytes) const;  // null if there is no memory

  cuda::OutsideOfCapture outside_;  // this thread waits and allocates while other streams are being captured
  cuda::Stream stream_;
  Context context_;
  cuda::StreamScope scope_;
  Queue queue_;
  void* result_ = nullptr;
  std::int64_t offset_;  // where results begin in it: as aligned as the user's, and no better
  void* flush_ = nullptr;
  std::size_t flush_bytes_;
};

}  // namespace tandem::inline v0::kernels::gpu
