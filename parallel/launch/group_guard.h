#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include <sys/types.h>

// Internal: what a rank has started dies with the launcher, too.

namespace tandem::inline v0::parallel {

/// A process of its own that waits for the end of this one, and then kills the process groups that are written down:
/// PR_SET_PDEATHSIG ends the ranks, but not their children. It is in a session of its own, so that it hears no signals
/// of a terminal.
class GroupGuard {
 public:
  /// Room for `groups`.
  explicit GroupGuard(std::size_t groups);
  /// It ends, and nothing is killed.
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// Shared with children: each writes its own group before it executes anything. 0: none. It is set back to 0 before
  /// the group's number can be another's.
  std::span<std::atomic<pid_t>> groups() const noexcept { return groups_; }

 private:
  std::span<std::atomic<pid_t>> groups_;
  int write_end_ = -1;
  pid_t pid_ = -1;
};

}  // namespace tandem::inline v0::parallel
