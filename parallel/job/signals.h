#pragma once

#include <optional>

#include <tandem/core/file.h>

// Internal: signals that a launcher passes on to its ranks.

namespace tandem::inline v0::parallel {

/// While an enabled catcher exists, SIGINT, SIGTERM, SIGHUP and SIGTSTP arrive at a descriptor instead of ending the
/// process, and SIGPIPE does nothing. An ignored signal stays ignored, such as SIGHUP under nohup. Only one catcher may
/// exist at a time. Executed children start with the default handlers.
class SignalCatcher {
 public:
  /// If not `enabled`, the signal handlers stay as they are.
  explicit SignalCatcher(bool enabled);
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;

  /// Becomes readable when a signal has arrived; -1 if not enabled.
  int descriptor() const noexcept { return pipe_ ? pipe_->read_end.get() : -1; }
  /// The next signal; 0: none.
  int take() const;
  /// The next signal that ends a process; 0: none. A SIGTSTP stops this process here until it is continued.
  int take_end() const;

 private:
  std::optional<core::Pipe> pipe_;  // from the handlers; empty if not enabled
};

}  // namespace tandem::inline v0::parallel
