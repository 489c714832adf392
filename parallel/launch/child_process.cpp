#include <tandem/parallel/launch/child_process.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tandem/core/check.h>

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

// What the child needs, made before fork(): afterwards it may only make system calls.
struct Prepared {
  const char* file;
  char* const* arguments;
  char* const* environment;
  int in;
  int out;
  int err;
  int failure;  // where errno goes
  pid_t parent;
  const sigset_t* mask;
  std::atomic<pid_t>* group;
};

// A descriptor that is already at its place would stay close-on-exec.
bool put(int from, int to) { return from == to ? ::fcntl(to, F_SETFD, 0) == 0 : ::dup2(from, to) == to; }

[[noreturn]] void become(const Prepared& child) {
  ::setpgid(0, 0);
  child.group->store(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != child.parent) {
    ::_exit(1);  // the launcher ended before this could be seen
  }
  // No handler of the parent's may run here: it would write into the parent's pipe.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now{};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      ::sigaction(number, &standard, nullptr);
    }
  }
  const bool placed = put(child.in, STDIN_FILENO) && (child.out < 0 || put(child.out, STDOUT_FILENO)) &&
                      (child.err < 0 || put(child.err, STDERR_FILENO));
  ::pthread_sigmask(SIG_SETMASK, child.mask, nullptr);
  if (placed) {
    ::execve(child.file, child.arguments, child.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(child.failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const ChildPlan& plan, std::atomic<pid_t>& group) : group_(group) {
  const std::vector<char*> arguments = pointers_to(plan.arguments);
  const std::vector<char*> environment = pointers_to(plan.environment);
  std::array<int, 2> failure{-1, -1};
  const bool made = ::pipe2(failure.data(), O_CLOEXEC) == 0;  // errno is read after it
  check<IoError>(made, "launch: no pipe for a rank: {}", std::strerror(errno));
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  sigset_t all;
  sigset_t mask;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  const Prepared prepared{plan.file.c_str(), arguments.data(), environment.data(), in,    plan.out,
                          plan.err,          failure[1],       ::getpid(),         &mask, &group};
  pid_ = ::fork();
  if (pid_ == 0) {
    become(prepared);
  }
  int error = pid_ < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::close(in);
  ::close(failure[1]);
  if (pid_ > 0) {
    while (::read(failure[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
  }
  ::close(failure[0]);
  if (error != 0) {
    if (pid_ > 0) {
      group_ = 0;
      ::waitpid(pid_, nullptr, 0);
    }
    fail<IoError>("cannot execute {}: {}{}", plan.file, std::strerror(error),
                  error == ENOEXEC ? " (a script needs a first line such as #!/bin/sh)" : "");
  }
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));  // close-on-exec
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

// Until waitpid() the number is ours, and the group cannot be another's.
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
  if (pidfd_ >= 0) {
    ::close(pidfd_);
    pidfd_ = -1;
  }
  return status;
}

}  // namespace tandem::inline v0::parallel
