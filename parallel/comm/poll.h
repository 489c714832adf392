#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

// Internal: waiting for what can only be asked, as GPUs.

namespace tandem::inline v0::parallel {

/// Asks `ready` until it says yes; false once `deadline` has passed. Awake at first, then with naps of a hundredth of
/// what it has lasted, so that it is late by no more; none is longer than `longest_nap`.
template <class Ready>
bool poll_until(std::chrono::steady_clock::time_point deadline, const Ready& ready,
                std::chrono::steady_clock::duration longest_nap = std::chrono::milliseconds(5)) {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kAwake = std::chrono::microseconds(500);
  const Clock::time_point begin = Clock::now();
  while (!ready()) {
    const Clock::time_point now = Clock::now();
    if (now > deadline) {
      return false;
    }
    if (now - begin > kAwake) {
      std::this_thread::sleep_for(std::min((now - begin) / 100, longest_nap));
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

}  // namespace tandem::inline v0::parallel
