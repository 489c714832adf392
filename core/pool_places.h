#pragma once

#include <atomic>
#include <chrono>
#include <limits>

#include <tandem/core/pool_caller.h>

namespace tandem::inline v0::core {

/// A thread that calls the pool: its place in the list of all. Places are kept for later threads when theirs ends.
struct PoolPlace {
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::rep kInside = std::numeric_limits<Clock::rep>::max();
  static constexpr Clock::rep kFree = std::numeric_limits<Clock::rep>::min();
  static constexpr Clock::rep kIdle = kFree + 1;

  void enter() noexcept { active.store(kInside, std::memory_order_relaxed); }
  void leave() noexcept { active.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }

  PoolCaller chunks;  // of the op that it computes
  PoolCaller lanes;   // around ops
  PoolPlace* next = nullptr;
  // A worker in a lane calls, too: it has a share of the threads, but is no further thread that keeps a core busy.
  std::atomic<bool> of_worker{false};
  // When its thread last was in a call: kInside now, kIdle if it was not yet, kFree for one that is to be had.
  std::atomic<Clock::rep> active{kIdle};
  // Only its own thread looks at these: the callers that are busy, and how many of them stand before it in the list.
  int busy_callers = 1;
  int busy_workers = 0;  // of those
  int rank = 0;
  Clock::time_point counted;
  Clock::time_point had_lanes;  // when they ended
};

/// The places of all threads. Grows at its head; nothing ever leaves it.
class PoolPlaces {
 public:
  /// The calling thread's, which it has from now on until it ends.
  PoolPlace& own();
  /// Whether the calling thread has given its place back: it is about to end.
  static bool thread_ends() noexcept;
  /// The calling thread is a worker of the pool. Before it has a place.
  static void set_worker() noexcept;

  PoolPlace* first() const noexcept { return first_.load(std::memory_order_acquire); }
  /// Whether something that was at `time` is to be counted as going on.
  static bool is_recent(PoolPlace::Clock::time_point time) noexcept;
  /// Threads that are in a call or were a moment ago, workers apart.
  int count_busy() const;
  /// How many callers there are, `own` counted whatever it does. Looked up once in a while.
  void look_around(PoolPlace& own) const;
  /// Whether a thread is in a call.
  bool is_running() const;
  /// Only the calling thread is left, in a forked child: what others were about to hand out must not be done.
  void forget_others();

 private:
  PoolPlace* claim();

  std::atomic<PoolPlace*> first_{nullptr};
};

}  // namespace tandem::inline v0::core
