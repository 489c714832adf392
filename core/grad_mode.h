#pragma once

#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

/// Whether ops on this thread are recorded.
inline bool is_grad_enabled() noexcept { return core::thread_state().grad_enabled; }

/// Switches gradient recording on this thread on or off for a scope.
class GradModeScope {
 public:
  [[nodiscard]] explicit GradModeScope(bool enabled) noexcept : saved_(core::thread_state().grad_enabled) {
    core::thread_state().grad_enabled = enabled;
  }
  ~GradModeScope() { core::thread_state().grad_enabled = saved_; }
  GradModeScope(const GradModeScope&) = delete;
  GradModeScope& operator=(const GradModeScope&) = delete;

 private:
  bool saved_;
};

/// Switches gradient recording on this thread off for a scope, for example for evaluation or parameter updates.
class NoGradGuard : public GradModeScope {
 public:
  [[nodiscard]] NoGradGuard() noexcept : GradModeScope(false) {}
};

}  // namespace tandem::inline v0
