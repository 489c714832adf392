#pragma once

#include <csignal>
#include <ctime>

#include <pthread.h>

// Internal: signal masks for threads that use Gloo.

namespace tandem::inline v0::parallel {

/// While a SignalBlock exists, new threads start with all signals blocked: signals belong to the program's own threads.
class SignalBlock {
 public:
  SignalBlock() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

/// While a SigpipeBlock exists, writing to a closed connection is an error for the calling thread and raises no
/// SIGPIPE: Gloo writes without MSG_NOSIGNAL. The destructor restores the thread's mask. A nested SigpipeBlock on the
/// same thread costs nothing.
class SigpipeBlock {
 public:
  SigpipeBlock() noexcept {
    if (depth_++ == 0) {
      ::sigemptyset(&sigpipe_);
      ::sigaddset(&sigpipe_, SIGPIPE);
      sigset_t before;
      changed_ = ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before) == 0 && ::sigismember(&before, SIGPIPE) == 0;
    }
  }
  ~SigpipeBlock() {
    --depth_;
    if (changed_) {
      const timespec now{};
      while (::sigtimedwait(&sigpipe_, nullptr, &now) ==
             SIGPIPE) {  // a pending SIGPIPE must not arrive after unblocking
      }
      ::pthread_sigmask(SIG_UNBLOCK, &sigpipe_, nullptr);
    }
  }
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  inline static thread_local int depth_ = 0;
  sigset_t sigpipe_;
  bool changed_ = false;
};

}  // namespace tandem::inline v0::parallel
