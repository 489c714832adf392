#pragma once

#include <atomic>
#include <chrono>
#include <limits>

#include <tandem/core/pool_caller.h>

namespace tandem::inline v0::core {

/// The place of one calling thread in the list of all callers. When its thread ends, the place is kept for a later
/// thread.
struct PoolPlace {
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::rep kInside = std::numeric_limits<Clock::rep>::max();
  static constexpr Clock::rep kFree = std::numeric_limits<Clock::rep>::min();
  static constexpr Clock::rep kIdle = kFree + 1;

  void enter() noexcept { active.store(kInside, std::memory_order_relaxed); }
  void leave() noexcept { active.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }

  PoolCaller chunks;  // chunks of the op that this thread computes
  PoolCaller lanes;   // lanes, which contain ops
  PoolPlace* next = nullptr;
  // A worker that runs a lane is also a caller: it has its own share of the threads but does not keep another core
  // busy.
  std::atomic<bool> of_worker{false};
  // Time of the thread's last call: kInside during a call, kIdle before the first one, kFree for an unowned place.
  std::atomic<Clock::rep> active{kIdle};
  // Only the owning thread reads these members: the number of busy callers, and how many of them precede it in the
  // list.
  int busy_callers = 1;
  int busy_workers = 0;  // number of workers among the busy callers
  int rank = 0;
  Clock::time_point counted;
  Clock::time_point had_lanes;  // time at which the last lanes ended
};

/// The places of all threads. The list grows at its head, and places are never removed.
class PoolPlaces {
 public:
  /// The place of the calling thread, which keeps it until the thread ends.
  PoolPlace& own();
  /// Whether the calling thread has returned its place because it is about to end.
  static bool thread_ends() noexcept;
  /// Marks the calling thread as a worker of the pool. Call this before the thread has a place.
  static void set_worker() noexcept;

  PoolPlace* first() const noexcept { return first_.load(std::memory_order_acquire); }
  /// Whether an activity last seen at `time` still counts as going on.
  static bool is_recent(PoolPlace::Clock::time_point time) noexcept;
  /// Number of threads, without workers, that are in a call or were in one a moment ago.
  int count_busy() const;
  /// Updates the number of busy callers in `own`, which always counts as busy. The list is scanned only once in a
  /// while.
  void look_around(PoolPlace& own) const;
  /// Whether any thread is in a call.
  bool is_running() const;
  /// Forgets all other threads in a forked child: chunks that they were about to hand out must not run.
  void forget_others();

 private:
  PoolPlace* claim();

  std::atomic<PoolPlace*> first_{nullptr};
};

}  // namespace tandem::inline v0::core
