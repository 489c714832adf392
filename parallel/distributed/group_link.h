#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/process_group.h>

// Internal: a wrapper's or Join's link to its process group.

namespace tandem::inline v0::parallel {

namespace detail {

/// Returns the text of the current exception. Call in a handler.
inline std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "what was thrown is not a std::exception";
  }
}

}  // namespace detail

/// One rank's place in a group, which may be destroyed before its wrappers. The link keeps the group's queue, which
/// knows whether the group is gone and counts the passes of all wrappers of the group.
class GroupLink {
 public:
  explicit GroupLink(ProcessGroup& group)
      : group_(&group),
        queue_(group.queue()),
        wrapper_(queue_->wrappers.fetch_add(1)),
        rank_(group.rank()),
        size_(group.size()) {}

  int rank() const noexcept { return rank_; }
  /// The numbers of ranks in the job, for texts.
  const GroupNames& names() const noexcept { return *queue_->names(); }
  int size() const noexcept { return size_; }
  /// "DistributedDataParallel #1": the second wrapper of this group, on all ranks alike.
  std::string wrapper_name() const { return "DistributedDataParallel #" + std::to_string(wrapper_); }
  /// Whether this is the group's first wrapper.
  bool is_first() const noexcept { return wrapper_ == 0; }
  std::atomic<int>& open_passes() const noexcept { return queue_->open_passes; }

  /// Throws ConfigError if the group is gone.
  void check_open() const {
    check<ConfigError>(
        !queue_->is_closed(),
        "DistributedDataParallel: its process group is gone; keep it (ProcessGroupGuard) for as long as the "
        "module is trained");
  }
  /// See check_open().
  ProcessGroup& group() const {
    check_open();
    return *group_;
  }

  /// Whether something has ended the group, on some rank.
  bool is_dead() const { return queue_->is_dead(); }
  /// Ends the group on all ranks. A rank that is alone keeps its group, since no other rank waits.
  void abort(std::string_view reason) const {
    if (size_ > 1) {
      queue_->abort(reason);
    }
  }

 private:
  ProcessGroup* group_;
  std::shared_ptr<detail::CommQueue> queue_;
  int wrapper_;
  int rank_;
  int size_;
};

}  // namespace tandem::inline v0::parallel
