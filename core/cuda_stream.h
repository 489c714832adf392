#pragma once

#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Order on a GPU. Work of a thread goes to its current stream; other streams wait by events, never the host. Needs no
// CUDA header; in a build without CUDA there is no GPU to make a stream of, and each constructor says so.

struct CUstream_st;
struct CUevent_st;

namespace tandem::inline v0::cuda {

class Stream;

/// A point in the work of a stream. Handles share it. Not recorded yet, it counts as reached.
class TANDEM_API Event {
 public:
  /// `timing` lets elapsed_time() measure with it, which costs a little at each record. Throws DeviceError without a
  /// GPU.
  explicit Event(Device device = Device(0), bool timing = false);

  /// Moves the event to the end of what `stream` has to do now. Both must be of one GPU (DeviceError).
  void record(const Stream& stream);
  /// Whether the GPU has got there. Never blocks.
  bool query() const;
  /// Blocks until the GPU has got there. Throws as Stream::synchronize.
  void synchronize() const;
  /// Milliseconds from this event to `end`; waits for `end`. Throws ConfigError unless both were made for timing.
  double elapsed_time(const Event& end) const;
  /// Where it can be recorded.
  Device device() const noexcept;
  /// For CUDA calls of your own: a cudaEvent_t.
  CUevent_st* handle() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// A queue of work on one GPU. Handles share it; the last one waits for nothing.
class TANDEM_API Stream {
 public:
  /// A new queue; where there is a choice, the GPU prefers those with the lower `priority` (0 or negative; what the GPU
  /// does not have is brought into its range). Throws DeviceError unless `device` is a GPU that can be used.
  explicit Stream(Device device = Device(0), int priority = 0);

  /// Whose work it holds.
  Device device() const noexcept;
  /// What it was made with, in the range of its GPU.
  int priority() const noexcept;
  /// Whether all work is done. Never blocks.
  bool query() const;
  /// Blocks until all work that was queued is done. Throws what that work ran into: ValueError for a value no op can
  /// use, DeviceError for a GPU in trouble, or for one that is not done after TANDEM_GPU_TIMEOUT seconds (600 unless
  /// set; 0 waits for ever).
  void synchronize() const;
  /// An event at the end of what is queued now.
  Event record_event() const;
  /// What is queued from here on waits for `event`, on the GPU.
  void wait_event(const Event& event) const;
  /// What is queued from here on waits for all that is queued on `other` now.
  void wait_stream(const Stream& other) const;
  /// For CUDA calls of your own: a cudaStream_t.
  CUstream_st* handle() const noexcept;

  /// Whether both are the same queue.
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.handle() == b.handle(); }

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The queue that threads of this process share unless they choose another. Throws DeviceError unless `device` is a GPU
/// that can be used.
TANDEM_API Stream default_stream(Device device = Device(0));
/// The queue of the calling thread: that of its innermost StreamScope for `device`, else the default one.
TANDEM_API Stream current_stream(Device device = Device(0));
/// Blocks until all work of `device` is done, on all streams. Throws as Stream::synchronize; only for what was queued
/// on streams that are not tandem's there is no limit.
TANDEM_API void synchronize(Device device = Device(0));

/// Work of this thread on the stream's GPU goes to `stream` for a scope. Memory of tensors is safe on any stream, but
/// order is yours: wait_stream() or events where one stream reads what another writes.
class TANDEM_API StreamScope {
 public:
  [[nodiscard]] explicit StreamScope(Stream stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  /// The stream of this scope.
  const Stream& stream() const noexcept { return stream_; }
  /// The scope around it, or null.
  const StreamScope* outer() const noexcept { return outer_; }

 private:
  Stream stream_;
  const StreamScope* outer_;
};

}  // namespace tandem::inline v0::cuda
