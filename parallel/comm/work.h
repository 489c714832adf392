#pragma once

#include <chrono>
#include <memory>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

namespace detail {
struct Operation;
class CommQueue;
}  // namespace detail

/// A call to a process group that may still be running. Do not touch its tensors until it is done; they are kept alive.
/// Dropping a Work does not stop the call, and its error is not lost: the group is dead then, and the next call throws
/// the error. Without a next call the group's destructor reports it as a warning.
///
/// For a call on a GPU these rules follow the order of streams: the call is ordered after work that the caller's
/// current stream held, and wait() orders the waiting thread's current stream after the call. The host continues, as
/// with torch's NCCL, unless the backend goes through host memory.
class TANDEM_API Work {
 public:
  /// Returns when the call is done. If no other thread is running the queue, this thread does. Throws the call's
  /// CommError, at its deadline at the latest. A later error on a GPU is thrown by the next call, or by
  /// ProcessGroup::wait_all().
  void wait();
  /// Whether the call has ended, successfully or not, on a GPU as well.
  bool done() const;
  /// The time at which the call gives up.
  std::chrono::steady_clock::time_point deadline() const;

  /// Called by ProcessGroup.
  Work(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation);

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  std::shared_ptr<detail::Operation> operation_;
};

/// One collective on fixed memory, repeated; made by ProcessGroup::plan_all_reduce() and its like. All ranks must start
/// their plans in the same order, relative to each other and to other calls. Call start(), then wait(), any number of
/// times.
class TANDEM_API PlannedCollective {
 public:
  /// Leaves the call to the group's thread. Cheap and without allocation: made for hooks of a backward pass. Throws
  /// CommError if the group is dead, ConfigError if the plan was started and not waited for, CaptureError while this
  /// thread records a step. On a GPU the call is ordered after the caller's current stream, and wait() orders the
  /// waiting thread's current stream after the call.
  void start();
  /// start() and wait() in one, on this thread: for memory so small that waking another thread would cost more.
  void run();
  /// Returns when the call is done. Throws its CommError. Does nothing before the first start().
  void wait();

  /// Called by ProcessGroup.
  PlannedCollective(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation);

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  std::shared_ptr<detail::Operation> operation_;
};

}  // namespace tandem::inline v0::parallel
