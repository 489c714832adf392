#pragma once

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

}  // namespace tandem::inline v0::core
