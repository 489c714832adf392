#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include <tandem/core/file.h>

// Internal: starts a rank's process, notices its end, and ends the rank when this process dies.

namespace tandem::inline v0::parallel {

/// The program, arguments, environment and output of a child process.
struct ChildPlan {
  std::string file;                      // path of the executable
  std::vector<std::string> arguments;    // the program's name first
  std::vector<std::string> environment;  // "NAME=value"
  int out = -1;                          // its stdout; -1: ours
  int err = -1;                          // its stderr; -1: ours
  int kept = -1;                         // a descriptor that it inherits under this number; -1: none
};

/// A child in its own process group with an empty stdin. The system kills the child when the thread that started it
/// ends.
class ChildProcess {
 public:
  /// Returns when the child runs. Throws IoError if the program cannot be executed or the system has no more processes.
  /// The child writes its process group into `group` before it executes the program.
  ChildProcess(const ChildPlan& plan, std::atomic<pid_t>& group);
  /// Kills the remaining processes of the group.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The process id, which is also the group's id.
  pid_t pid() const noexcept { return pid_; }
  /// Becomes readable when the child has ended; -1 if the system has no pidfd.
  int descriptor() const noexcept { return pidfd_.get(); }
  /// Whether it has ended.
  bool has_ended() const;
  /// Sends a signal to the whole group; does nothing after reap().
  void signal(int number) const;
  /// Call after the child has ended: kills the rest of its group and returns the status from waitpid().
  int reap();

 private:
  std::atomic<pid_t>& group_;
  pid_t pid_ = -1;
  core::Descriptor pidfd_;
  bool reaped_ = false;
};

/// A separate process that waits for the end of this one and then kills all recorded process groups. PR_SET_PDEATHSIG
/// ends the ranks but not their children. The guard runs in its own session, so it receives no signals from a terminal.
class GroupGuard {
 public:
  /// Reserves room for `groups` process groups.
  explicit GroupGuard(std::size_t groups);
  /// Ends the guard without killing any group.
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// Memory shared with the children: each child writes its group here before it executes its program. 0 means no
  /// group. An entry returns to 0 before the system can reuse the group's id.
  std::span<std::atomic<pid_t>> groups() const noexcept { return groups_; }
  /// Becomes readable when the guard has ended; -1 if the system has no pidfd.
  int descriptor() const noexcept { return pidfd_.get(); }
  /// Somebody may have killed the guard. Starts another one then, and returns the process id of the old one, else 0.
  /// Throws IoError if the system has no more processes; the job is then unguarded.
  pid_t replace_if_ended();

 private:
  void start();

  std::span<std::atomic<pid_t>> groups_;
  core::Descriptor alive_;  // the end of a pipe; the guard notices when it closes
  pid_t pid_ = -1;          // -1: there is none
  core::Descriptor pidfd_;
};

}  // namespace tandem::inline v0::parallel
