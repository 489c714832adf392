#include <tandem/parallel/launch/group_guard.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::parallel {

namespace {

// A listening port or a rank's pipe that stayed open here would outlive the launcher.
void close_all_but_stdin() {
  if (::close_range(1, ~0U, 0) != 0) {
    for (int fd = 1; fd < 65536; ++fd) {
      ::close(fd);
    }
  }
}

// In a child of fork(), maybe of a process with threads: system calls only.
[[noreturn]] void guard(int read_end, int ready, std::span<std::atomic<pid_t>> groups) {
  ::setsid();
  ::prctl(PR_SET_NAME, "launch-guard");  // who kills all processes of the launcher's name spares it
  char byte = 0;
  [[maybe_unused]] const ssize_t told = ::write(ready, &byte, 1);
  ::dup2(read_end, STDIN_FILENO);
  close_all_but_stdin();
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  for (const std::atomic<pid_t>& group : groups) {
    if (const pid_t number = group.load(); number > 0) {
      ::kill(-number, SIGKILL);
    }
  }
  ::_exit(0);
}

}  // namespace

GroupGuard::GroupGuard(std::size_t groups) {
  static_assert(std::atomic<pid_t>::is_always_lock_free);
  void* memory =
      ::mmap(nullptr, groups * sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check<IoError>(memory != MAP_FAILED, "launch: no memory to share with ranks: {}", std::strerror(errno));
  groups_ = {static_cast<std::atomic<pid_t>*>(memory), groups};  // zeros
  int ends[2] = {-1, -1};
  int ready[2] = {-1, -1};
  pid_ = ::pipe2(ends, O_CLOEXEC) == 0 && ::pipe2(ready, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (pid_ == 0) {
    ::close(ends[1]);
    guard(ends[0], ready[1], groups_);
  }
  const int error = errno;
  ::close(ends[0]);
  ::close(ready[1]);
  write_end_ = ends[1];
  // Until it is in its own session a Ctrl-C in this terminal would end it.
  char byte = 0;
  while (pid_ > 0 && ::read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  ::close(ready[0]);
  if (pid_ < 0) {
    ::close(write_end_);
    ::munmap(memory, groups_.size_bytes());
  }
  check<IoError>(pid_ > 0, "launch: the system refuses one more process: {}", std::strerror(error));
}

GroupGuard::~GroupGuard() {
  for (std::atomic<pid_t>& group : groups_) {
    group = 0;
  }
  ::close(write_end_);
  ::kill(pid_, SIGKILL);  // it would wait for children that another thread has forked, too: they have the pipe
  ::waitpid(pid_, nullptr, 0);
  ::munmap(groups_.data(), groups_.size_bytes());
}

}  // namespace tandem::inline v0::parallel
