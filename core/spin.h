#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tandem::inline v0::core {

/// Tells the processor that the thread waits actively.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits for `done` without giving up the core; false when that takes longer than `patience`.
template <class Done>
bool spin_until(std::chrono::steady_clock::duration patience, const Done& done) {
  constexpr int kLooks = 64;  // from one look at the clock to the next: some microseconds
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

/// A mutex around a few instructions: who finds it locked stays awake, since to be woken costs many times what is
/// waited for. Gives up the core when its holder may have lost its own.
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
