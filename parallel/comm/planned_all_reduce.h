#pragma once

#include <memory>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

namespace detail {
struct Operation;
class CommQueue;
}  // namespace detail

/// Made by ProcessGroup::plan_all_reduce(): one all-reduce of fixed memory, again and again. All ranks start their
/// plans in the same order, among themselves and among their other calls. start(), then wait(), as often as is wanted.
class TANDEM_API PlannedAllReduce {
 public:
  /// Leaves it to the group's thread. Cheap and without allocation: meant for hooks of a backward pass. Throws
  /// CommError if the group is dead, ConfigError if it was started and not waited for, CaptureError while this thread
  /// records a step. On a GPU it is ordered after what the caller's current stream holds, and wait() orders the waiting
  /// thread's after it.
  void start();
  /// start() and wait() in one, on this thread: for memory so small that another thread's wake-up would cost more.
  void run();
  /// Returns when it is done; throws its CommError. Nothing happens before the first start().
  void wait();

  /// Used by ProcessGroup.
  PlannedAllReduce(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation);

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  std::shared_ptr<detail::Operation> operation_;
};

}  // namespace tandem::inline v0::parallel
