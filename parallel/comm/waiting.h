#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include <tandem/core/cores.h>
#include <tandem/core/spin.h>
#include <tandem/parallel/comm/collective.h>

// Internal: how threads that carry data wait, and how soon they run again.

namespace tandem::inline v0::parallel {

/// Polls `done` without sleeping: first for some microseconds, then for up to `patience`, yielding the core to any
/// thread that wants it. On a busy machine that may be the very thread that `done` waits for. Returns false if `done`
/// stayed false.
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

/// Polls `ready`, which may be slow to ask, such as a GPU; returns false once `deadline` has passed. Stays awake at
/// first. Then it sleeps for 1 % of the time waited so far, so that it is late by at most 1 %, and never for more than
/// 5 ms.
template <class Ready>
bool poll_until(std::chrono::steady_clock::time_point deadline, const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  if (wait_awake(std::chrono::microseconds(500), ready)) {
    return true;
  }
  while (!ready()) {
    const Clock::time_point now = Clock::now();
    if (now > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::min<Clock::duration>((now - begin) / 100, std::chrono::milliseconds(5)));
  }
  return true;
}

/// The patience for one of `ranks` ranks on this host. It is above 0 only if the caller waits and every rank has a core
/// of its own.
inline std::chrono::steady_clock::duration patience_of(const CallTime& time, int ranks) {
  constexpr std::chrono::microseconds kPatience(200);  // as in the thread pool: several times the cost of a wake-up
  static const int cores = core::available_cores();
  return time.caller_waits && ranks <= cores ? kPatience : std::chrono::microseconds(0);
}

/// A place where threads wait for other threads: awake for a moment, then asleep.
class ParkingLot {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits for `done`, which reads sequentially consistent atomics. Returns false once `deadline` has passed.
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

  /// Call after storing a value that a thread may wait for. A parking thread increments the count before its last
  /// check, and wake() reads the count after the change, so one of them sees the other.
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

/// While this object lives, this thread and the threads it starts run soon after they wake, even on busy cores, and for
/// a short time each. By default Linux lets a running thread compute for milliseconds before a thread that wakes later,
/// unless the latter asks for shorter slices (EEVDF, Linux 6.12). Has no effect on systems without this feature.
class ShortSlice {
 public:
  ShortSlice() noexcept;
  ~ShortSlice();
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;

 private:
  std::uint64_t before_ = 0;  // previous slice in ns
};

}  // namespace tandem::inline v0::parallel
