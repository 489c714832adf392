#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <tandem/core/export.h>
#include <tandem/nn/module_ref.h>

// Internal: writes one checkpoint at a time, in the background.

namespace tandem::inline v0::checkpoint {

/// The first of these tensors that is not finite, or an empty text.
std::string first_nonfinite(const nn::NamedTensors& tensors);

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
