#include <tandem/parallel/job/child_process.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>

namespace tandem::inline v0::parallel {

namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Everything the child needs, prepared before fork(): afterwards the child may only make system calls.
struct Prepared {
  const char* file;
  char* const* arguments;
  char* const* environment;
  int in;
  int out;
  int err;
  int kept;
  int failure;  // descriptor that receives errno
  pid_t parent;
  const sigset_t* mask;
  std::atomic<pid_t>* group;
};

// dup2() to the same number would leave the descriptor close-on-exec.
bool put(int from, int to) { return from == to ? ::fcntl(to, F_SETFD, 0) == 0 : ::dup2(from, to) == to; }

[[noreturn]] void become(const Prepared& child) {
  ::setpgid(0, 0);
  child.group->store(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != child.parent) {
    ::_exit(1);  // the launcher ended before PR_SET_PDEATHSIG took effect
  }
  // The parent's handlers must not run here: they would write into the parent's pipe.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now{};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      ::sigaction(number, &standard, nullptr);
    }
  }
  const bool placed = put(child.in, STDIN_FILENO) && (child.out < 0 || put(child.out, STDOUT_FILENO)) &&
                      (child.err < 0 || put(child.err, STDERR_FILENO)) &&
                      (child.kept < 0 || ::fcntl(child.kept, F_SETFD, 0) == 0);
  ::pthread_sigmask(SIG_SETMASK, child.mask, nullptr);
  if (placed) {
    ::execve(child.file, child.arguments, child.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(child.failure, &error, sizeof error);
  ::_exit(127);
}

// An inherited listening port or rank's pipe would otherwise outlive the launcher.
void close_all_but_stdin() {
  if (::close_range(1, ~0U, 0) != 0) {
    for (int fd = 1; fd < 65536; ++fd) {
      ::close(fd);
    }
  }
}

// Runs in a child of fork(), perhaps of a process with threads, so only system calls are allowed.
[[noreturn]] void guard(int read_end, int ready, std::span<std::atomic<pid_t>> groups) {
  ::setsid();
  ::prctl(PR_SET_NAME, "launch-guard");  // so killing all processes with the launcher's name spares the guard
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

ChildProcess::ChildProcess(const ChildPlan& plan, std::atomic<pid_t>& group) : group_(group) {
  const std::vector<char*> arguments = pointers_to(plan.arguments);
  const std::vector<char*> environment = pointers_to(plan.environment);
  core::Pipe failure("launch: no pipe for a rank");
  const core::Descriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  check<IoError>(in.get() >= 0, "launch: no input for a rank: {}", core::system_message(errno));
  sigset_t all;
  sigset_t mask;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  const Prepared prepared{plan.file.c_str(), arguments.data(),        environment.data(), in.get(), plan.out, plan.err,
                          plan.kept,         failure.write_end.get(), ::getpid(),         &mask,    &group};
  pid_ = ::fork();
  if (pid_ == 0) {
    become(prepared);
  }
  int error = pid_ < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  failure.write_end.close();
  while (pid_ > 0 && ::read(failure.read_end.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  if (error != 0) {
    if (pid_ > 0) {
      group_ = 0;
      ::waitpid(pid_, nullptr, 0);
    }
    fail<IoError>("cannot execute {}: {}{}", plan.file, core::system_message(error),
                  error == ENOEXEC ? " (a script needs a first line such as #!/bin/sh)" : "");
  }
  pidfd_ = core::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));  // close-on-exec
  if (pidfd_.get() < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    error = errno;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    group_ = 0;
    fail<IoError>("launch: the end of a rank cannot be watched: {}", core::system_message(error));
  }
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    signal(SIGKILL);
    reap();
  }
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void ChildProcess::signal(int number) const {
  if (!reaped_) {
    ::kill(-pid_, number);
  }
}

// Until waitpid() the process id stays ours, so the group cannot belong to another process.
int ChildProcess::reap() {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  ::kill(-pid_, SIGKILL);
  group_ = 0;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  pidfd_.close();
  return status;
}

GroupGuard::GroupGuard(std::size_t groups) {
  static_assert(std::atomic<pid_t>::is_always_lock_free);
  void* memory =
      ::mmap(nullptr, groups * sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check<IoError>(memory != MAP_FAILED, "launch: no memory to share with ranks: {}", core::system_message(errno));
  groups_ = {static_cast<std::atomic<pid_t>*>(memory), groups};  // the mapping starts as zeros
  try {
    start();
  } catch (...) {
    ::munmap(memory, groups_.size_bytes());
    throw;
  }
}

void GroupGuard::start() {
  core::Pipe alive("launch: no pipe for the guard of ranks");
  core::Pipe ready("launch: no pipe for the guard of ranks");
  // In the guard the parent's handlers would write into the parent's pipe. The guard ends only with its parent, so its
  // signals stay blocked.
  sigset_t all;
  sigset_t mask;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t pid = ::fork();
  if (pid == 0) {
    alive.write_end.close();
    guard(alive.read_end.get(), ready.write_end.get(), groups_);
  }
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ready.write_end.close();
  // Wait until the guard is in its own session: before that, a Ctrl-C in this terminal would end it.
  char byte = 0;
  while (pid > 0 && ::read(ready.read_end.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  check<IoError>(pid > 0, "launch: the system refuses one more process: {}", core::system_message(error));
  pid_ = pid;
  alive_ = std::move(alive.write_end);
  pidfd_ = core::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

pid_t GroupGuard::replace_if_ended() {
  if (pid_ <= 0 || ::waitpid(pid_, nullptr, WNOHANG) != pid_) {
    return 0;
  }
  const pid_t ended = std::exchange(pid_, -1);
  pidfd_.close();
  start();
  return ended;
}

GroupGuard::~GroupGuard() {
  for (std::atomic<pid_t>& group : groups_) {
    group = 0;
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);  // the guard would also wait for children forked by other threads, which hold the pipe
    ::waitpid(pid_, nullptr, 0);
  }
  ::munmap(groups_.data(), groups_.size_bytes());
}

}  // namespace tandem::inline v0::parallel
