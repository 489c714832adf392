#pragma once

#include <string>

// Internal: signals that a launcher passes on to its ranks.

namespace tandem::inline v0::parallel {

/// "signal 9 (SIGKILL)".
std::string signal_text(int number);

/// While it is there, SIGINT, SIGTERM, SIGHUP and SIGTSTP wait in a descriptor instead of ending the process, and
/// SIGPIPE does nothing. One that is ignored stays so, as SIGHUP under nohup. One object at a time; children that are
/// executed have the default again.
class SignalCatcher {
 public:
  /// If not `enabled`, nothing is changed.
  explicit SignalCatcher(bool enabled);
  ~SignalCatcher();
  SignalCatcher(const SignalCatcher&) = delete;
  SignalCatcher& operator=(const SignalCatcher&) = delete;

  /// Can be read when a signal has come; -1 if not enabled.
  int descriptor() const noexcept { return read_end_; }
  /// The next one; 0: none.
  int take() const;
  /// The next one that ends a process; 0: none. By SIGTSTP this one has stopped meanwhile, and was continued.
  int take_end() const;

 private:
  int read_end_ = -1;
};

}  // namespace tandem::inline v0::parallel
