#pragma once

#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

/// Counts the memory that this thread allocates in a scope as `use`.
class MemoryUseScope {
 public:
  [[nodiscard]] explicit MemoryUseScope(MemoryUse use) noexcept : saved_(thread_state().memory_use) {
    thread_state().memory_use = use;
  }
  ~MemoryUseScope() { thread_state().memory_use = saved_; }
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  MemoryUse saved_;
};

}  // namespace tandem::inline v0::core
