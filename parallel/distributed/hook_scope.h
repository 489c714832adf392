#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/distributed/reducer.h>

// Internal: while a comm hook runs.

namespace tandem::inline v0::parallel {

/// Its thread, which must not begin another pass; and the bucket that its collectives are of, so that one rank's hook
/// of one wrapper is never taken for another rank's of another wrapper.
class Reducer::HookScope {
 public:
  HookScope(Reducer& reducer, std::size_t bucket) noexcept : reducer_(reducer) {
    reducer_.hook_runs_on_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    reducer_.queue_->hook_bucket.store(reducer_.plans_.empty() ? 0 : reducer_.plans_[bucket].number(),
                                       std::memory_order_relaxed);
  }
  ~HookScope() {
    reducer_.queue_->hook_bucket.store(0, std::memory_order_relaxed);
    reducer_.hook_runs_on_.store(std::thread::id(), std::memory_order_relaxed);
  }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  Reducer& reducer_;
};

}  // namespace tandem::inline v0::parallel
