#pragma once

#include <memory>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

namespace detail {
struct Operation;
class CommQueue;
}  // namespace detail

/// One all-reduce of fixed memory, repeated; made by ProcessGroup::plan_all_reduce(). All ranks must start their plans
/// in the same order, relative to each other and to other calls. Call start(), then wait(), any number of times.
class TANDEM_API PlannedAllReduce {
 public:
  /// Leaves the all-reduce to the group's thread. Cheap and without allocation: made for hooks of a backward pass.
  /// Throws CommError if the group is dead, ConfigError if it was started and not waited for, CaptureError while this
  /// thread records a step. On a GPU the all-reduce is ordered after the caller's current stream, and wait() orders the
  /// waiting thread's current stream after the all-reduce.
  void start();
  /// start() and wait() in one, on this thread: for memory so small that waking another thread would cost more.
  void run();
  /// Returns when the all-reduce is done. Throws its CommError. Does nothing before the first start().
  void wait();

  /// Called by ProcessGroup.
  PlannedAllReduce(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation);

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  std::shared_ptr<detail::Operation> operation_;
};

}  // namespace tandem::inline v0::parallel
