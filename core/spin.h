#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tandem::inline v0::core {

/// Tells the processor that the thread is busy-waiting.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits for `done` without giving up the core; returns false when that takes longer than `patience`.
template <class Done>
bool spin_until(std::chrono::steady_clock::duration patience, const Done& done) {
  constexpr int kLooks = 64;  // checks between two looks at the clock, a few microseconds apart
  const auto look = [&] {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) {
        return true;
      }
      spin_pause();
    }
    return false;
  };
  if (look()) {
    return true;
  }
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    if (look()) {
      return true;
    }
  }
  return false;
}

/// A mutex for critical sections of a few instructions. A waiting thread stays awake, because a wake-up costs many
/// times as much as the wait. The waiting thread yields once the holder may have lost its core.
class SpinLock {
 public:
  void lock() noexcept {
    for (int looks = 0; locked_.exchange(true, std::memory_order_acquire);) {
      while (locked_.load(std::memory_order_relaxed)) {
        ++looks < kLooks ? spin_pause() : std::this_thread::yield();
      }
    }
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  static constexpr int kLooks = 1000;
  std::atomic<bool> locked_{false};
};

}  // namespace tandem::inline v0::core
