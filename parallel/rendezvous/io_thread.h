#pragma once

#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/post.hpp>

#include <signal.h>
#include <unistd.h>

// Internal: the thread that runs all work of a StoreServer or a TcpStore.

namespace tandem::inline v0::parallel {

/// Runs an io_context. The thread blocks all signals, so other threads handle them.
class IoThread {
 public:
  void start(asio::io_context& io) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([&io] { io.run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  void join() { thread_.join(); }

  /// Runs `action` on the thread and waits for its end.
  template <class Action>
  void call(asio::io_context& io, Action&& action) const {
    if (std::this_thread::get_id() == thread_.get_id()) {
      action();  // from a callback
      return;
    }
    auto done = std::make_shared<std::promise<void>>();  // shared: set_value() may return after the wait has ended
    asio::post(io, [&action, done] {
      action();
      done->set_value();
    });
    done->get_future().wait();
  }

  /// False in a child of fork(), which has the object but not the thread.
  bool is_of_this_process() const noexcept { return owner_ == ::getpid(); }

 private:
  std::thread thread_;
  pid_t owner_ = ::getpid();
};

}  // namespace tandem::inline v0::parallel
