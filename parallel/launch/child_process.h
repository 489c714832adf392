#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <sys/types.h>

// Internal: starting a rank's process, and noticing its end.

namespace tandem::inline v0::parallel {

/// What a child is made of.
struct ChildPlan {
  std::string file;                      // that is executed: a path
  std::vector<std::string> arguments;    // with the name of the program
  std::vector<std::string> environment;  // "NAME=value"
  int out = -1;                          // its stdout; -1: ours
  int err = -1;                          // its stderr; -1: ours
};

/// A child in a process group of its own, with nothing to read on stdin, that is killed when the thread that started it
/// ends.
class ChildProcess {
 public:
  /// Returns when it runs. Throws IoError where it cannot be executed, or the system has no more processes. The child's
  /// group is written into `group` before it executes anything.
  ChildProcess(const ChildPlan& plan, std::atomic<pid_t>& group);
  /// Kills what is left of the group.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Its number, which is its group's, too.
  pid_t pid() const noexcept { return pid_; }
  /// Can be read when it has ended; -1 where the system has no such thing.
  int descriptor() const noexcept { return pidfd_; }
  /// Whether it has ended.
  bool has_ended() const;
  /// To the whole group, unless reap() was called.
  void signal(int number) const;
  /// Of an ended one: kills what else is in the group, and returns what waitpid() says.
  int reap();

 private:
  std::atomic<pid_t>& group_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool reaped_ = false;
};

}  // namespace tandem::inline v0::parallel
