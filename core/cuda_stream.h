#pragma once

#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Ordering of work on a GPU. A thread's work goes to its current stream; other streams wait by events, without blocking
// the host. This header needs no CUDA header. A build without CUDA has no GPU, so every constructor throws DeviceError
// and says so.

struct CUstream_st;
struct CUevent_st;

namespace tandem::inline v0::cuda {

class Stream;

/// A point in the work of a stream. Copies share the same event. An event that was never recorded counts as reached.
class TANDEM_API Event {
 public:
  /// `timing` allows elapsed_time() to use the event and makes each record() slightly slower. Throws DeviceError
  /// without a GPU.
  explicit Event(Device device = Device(0), bool timing = false);

  /// Moves the event to the end of the work queued on `stream` now. Throws DeviceError unless both are on the same GPU.
  void record(const Stream& stream);
  /// Whether the GPU has reached the event. Never blocks.
  bool query() const;
  /// Blocks until the GPU has reached the event. Throws the same errors as Stream::synchronize().
  void synchronize() const;
  /// Milliseconds from this event to `end`; waits for `end`. Throws ConfigError unless both were made with `timing`.
  double elapsed_time(const Event& end) const;
  /// The GPU whose streams can record the event.
  Device device() const noexcept;
  /// The underlying cudaEvent_t, for your own CUDA calls.
  CUevent_st* handle() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// A queue of work on one GPU. Copies share the same queue; destroying the last one does not wait for the queued work.
class TANDEM_API Stream {
 public:
  /// Makes a new queue. The GPU prefers queues with a lower `priority` (0 or negative); the value is clamped to the
  /// range the GPU supports. Throws DeviceError unless `device` is a usable GPU.
  explicit Stream(Device device = Device(0), int priority = 0);

  /// The GPU that runs the queued work.
  Device device() const noexcept;
  /// The priority of the queue, clamped to the range of its GPU.
  int priority() const noexcept;
  /// Whether all queued work is done. Never blocks.
  bool query() const;
  /// Blocks until all work queued so far is done. Throws the error that this work met: ValueError for a value that an
  /// op cannot use, DeviceError for a GPU failure or for work that is not done after TANDEM_GPU_TIMEOUT seconds (600 by
  /// default; 0 waits without limit).
  void synchronize() const;
  /// Makes an event at the end of the work queued now.
  Event record_event() const;
  /// Work queued after this call waits for `event` on the GPU; the host does not block.
  void wait_event(const Event& event) const;
  /// Work queued after this call waits for everything queued on `other` now.
  void wait_stream(const Stream& other) const;
  /// The underlying cudaStream_t, for your own CUDA calls.
  CUstream_st* handle() const noexcept;

  /// Whether both are the same queue.
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.handle() == b.handle(); }

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The queue that all threads of this process share unless they choose another. Throws DeviceError unless `device` is a
/// usable GPU.
TANDEM_API Stream default_stream(Device device = Device(0));
/// The queue of the calling thread: the stream of its innermost StreamScope for `device`, or the default stream.
TANDEM_API Stream current_stream(Device device = Device(0));
/// Blocks until all work of `device` is done, on all streams. Throws the same errors as Stream::synchronize(); its time
/// limit does not cover work queued on streams that tandem did not make.
TANDEM_API void synchronize(Device device = Device(0));

/// Sends this thread's work on the stream's GPU to `stream` for a scope. Tensor memory is safe on any stream, but
/// ordering is up to you: use wait_stream() or events where one stream reads data that another writes.
class TANDEM_API StreamScope {
 public:
  [[nodiscard]] explicit StreamScope(Stream stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  /// The stream of this scope.
  const Stream& stream() const noexcept { return stream_; }
  /// The enclosing scope, or null.
  const StreamScope* outer() const noexcept { return outer_; }

 private:
  Stream stream_;
  const StreamScope* outer_;
};

}  // namespace tandem::inline v0::cuda
