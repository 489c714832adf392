#pragma once

#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

/// Whether ops on this thread are recorded.
inline bool is_grad_enabled() noexcept { return core::thread_state().grad_enabled; }

/// Sets grad mode on this thread for a scope.
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

/// Nothing is recorded on this thread for a scope: evaluation, updates of parameters.
class NoGradGuard : public GradModeScope {
 public:
  [[nodiscard]] NoGradGuard() noexcept : GradModeScope(false) {}
};

}  // namespace tandem::inline v0
