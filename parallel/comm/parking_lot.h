#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <tandem/core/cores.h>
#include <tandem/core/spin.h>
#include <tandem/parallel/comm/collective.h>

namespace tandem::inline v0::parallel {

/// Looks for `done` awake for some microseconds, then as long as `patience` lasts whenever nobody else wants the core:
/// on a busy machine that may be the one who is waited for. False if it did not come.
template <class Done>
bool wait_awake(std::chrono::steady_clock::duration patience, const Done& done) {
  using Clock = std::chrono::steady_clock;
  if (core::spin_until(Clock::duration(0), done)) {
    return true;
  }
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    std::this_thread::yield();
    if (done()) {
      return true;
    }
  }
  return false;
}

/// How long a rank of that many on one host does so: only on a core that none of them needs.
inline std::chrono::steady_clock::duration patience_of(const CallTime& time, int ranks) {
  constexpr std::chrono::microseconds kPatience(200);  // as the thread pool's: several times what a wake-up costs
  static const int cores = core::available_cores();
  return time.caller_waits && ranks <= cores ? kPatience : std::chrono::microseconds(0);
}

/// Where threads wait for what other threads do: awake for a moment, then asleep.
class ParkingLot {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits for `done`, a look at sequentially consistent atomics; false once `deadline` has passed.
  template <class Done>
  bool wait(Clock::time_point deadline, Clock::duration patience, const Done& done) {
    if (wait_awake(patience, done)) {
      return true;
    }
    std::unique_lock lock(mutex_);
    parked_.fetch_add(1);
    const bool came = changed_.wait_until(lock, deadline, done);
    parked_.fetch_sub(1);
    return came;
  }

  /// Something that somebody waits for was stored. Who parks counts itself before its last look, this looks at the
  /// count after the change: one of them sees the other.
  void wake() {
    if (parked_.load() > 0) {
      {
        const std::lock_guard lock(mutex_);
      }
      changed_.notify_all();
    }
  }

 private:
  std::atomic<int> parked_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tandem::inline v0::parallel
