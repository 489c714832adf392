#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

// Internal: waiting for things that can only be polled, such as GPUs.

namespace tandem::inline v0::parallel {

/// Polls `ready` until it returns true; returns false once `deadline` has passed. Polls without sleeping at first. Then
/// it sleeps for 1 % of the time waited so far, so that it is late by at most 1 %, and never for longer than
/// `longest_nap`.
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
