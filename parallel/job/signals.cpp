#include <tandem/parallel/job/signals.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <unistd.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::array<int, 5> kSignals{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGPIPE};

std::atomic<int> write_end = -1;
std::array<struct sigaction, kSignals.size()> before{};

void note(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  // If the pipe is full, enough signals wait in it already.
  [[maybe_unused]] const ssize_t written = ::write(write_end.load(), &byte, 1);
  errno = saved;
}

// Executed children do not inherit a handler, but they would inherit SIG_IGN.
void do_nothing(int /*number*/) {}

}  // namespace

SignalCatcher::SignalCatcher(bool enabled) {
  if (!enabled) {
    return;
  }
  check<ConfigError>(write_end.load() == -1, "launch: only one launch at a time takes this process's signals");
  pipe_.emplace("launch: no pipe for signals", O_NONBLOCK);
  write_end = pipe_->write_end.get();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) {
      struct sigaction action{};
      action.sa_handler = kSignals[i] == SIGPIPE ? do_nothing : note;
      action.sa_flags = SA_RESTART;
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
}

SignalCatcher::~SignalCatcher() {
  if (pipe_) {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &before[i], nullptr);
    }
    write_end = -1;
  }
}

int SignalCatcher::take() const {
  unsigned char byte = 0;
  return pipe_ && ::read(descriptor(), &byte, 1) == 1 ? byte : 0;
}

int SignalCatcher::take_end() const {
  int number = take();
  while (number == SIGTSTP) {
    std::raise(SIGSTOP);
    number = take();
  }
  return number;
}

}  // namespace tandem::inline v0::parallel
