#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <thread>

// Internal: writes one checkpoint at a time, in the background.

namespace tandem::inline v0::checkpoint {

/// A thread that runs one piece of work at a time.
class RunWriter {
 public:
  /// Runs `work` in the background, or here. The work before must have been waited for.
  void start(std::function<void()> work, bool in_background);
  /// Waits for the work. Its error, if it failed, is told once.
  std::exception_ptr wait();

 private:
  std::exception_ptr error_;
  std::optional<std::jthread> thread_;
};

}  // namespace tandem::inline v0::checkpoint
