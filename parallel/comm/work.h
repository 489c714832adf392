#pragma once

#include <chrono>
#include <memory>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

namespace detail {
struct Operation;
class CommQueue;
}  // namespace detail

/// A call to a process group that may still be on its way. Until it is done, the tensors it was given are not to be
/// touched; they stay alive. A Work that is dropped leaves the call going on, and its error is not lost: the group is
/// dead then, and the next call throws it; without a next call the group's destructor says it as a warning.
///
/// Of a call on a GPU, "touched" is in the order of streams: the call is ordered after what the caller's current stream
/// held, and wait() orders the waiting thread's current stream after the call. The host goes on, as with torch's NCCL,
/// unless the backend goes through the host.
class TANDEM_API Work {
 public:
  /// Returns when the call is done: at once if that was so already. Does what is due itself, if nobody is at it. Throws
  /// the call's CommError, at its deadline at the latest. What goes wrong on a GPU after that is thrown by the next
  /// call, or by ProcessGroup::wait_all().
  void wait();
  /// Whether it is done, on a GPU too, well or not.
  bool done() const;
  /// When the call gives up.
  std::chrono::steady_clock::time_point deadline() const;

  /// Used by ProcessGroup.
  Work(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation);

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  std::shared_ptr<detail::Operation> operation_;
};

}  // namespace tandem::inline v0::parallel
