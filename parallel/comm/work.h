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

}  // namespace tandem::inline v0::parallel
