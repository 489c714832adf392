#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include <tandem/core/function_ref.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::core {

using ChunkBody = FunctionRef<void(std::int64_t)>;

/// A thread that hands out chunks, together with its current call. The object is never freed, so a worker may arrive
/// late: it finds a closed gate, or the chunks of the next call.
class PoolCaller {
 public:
  /// The largest number of chunks in one call.
  static constexpr std::int64_t kMostChunks = (std::int64_t{1} << 31) - 1;

  /// Opens the gate to at most `helpers` workers.
  void open(ChunkBody body, std::int64_t chunks, int helpers) {
    body_.emplace(body);
    most_visitors_.store(static_cast<std::uint32_t>(helpers), std::memory_order_relaxed);
    state_ = thread_state();
    unclaimed_.store(static_cast<std::uint64_t>(chunks) << 32, std::memory_order_relaxed);
    gate_.store(kOpen, std::memory_order_release);
  }

  /// Runs chunks until none is left. The caller takes chunks from the front and helpers take them from the back: with
  /// two threads, each one gets the same half of a tensor in every op and finds its own results still in its cache.
  void work(bool from_the_back) {
    for (;;) {
      const std::int64_t chunk = claim(from_the_back);
      if (chunk < 0) {
        return;
      }
      try {
        (*body_)(chunk);
      } catch (...) {
        const std::lock_guard lock(error_mutex_);
        if (!error_ || chunk < error_chunk_) {
          error_chunk_ = chunk;
          error_ = std::current_exception();
        }
      }
    }
  }

  /// Admits a worker, unless the gate is closed, all helpers have arrived, or no chunk is left.
  bool enter() {
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kOpen) != 0 && (gate & kVisitors) < most_visitors_.load(std::memory_order_relaxed) &&
           !is_empty(unclaimed_.load(std::memory_order_relaxed))) {
      if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }
  /// The state under which a visitor runs chunks: a copy made in open(), because the caller's own chunks may change its
  /// state.
  const ThreadState& state() const { return state_; }
  /// A visitor leaves. Returns true if the caller must be woken.
  bool leave() { return gate_.fetch_sub(1, std::memory_order_acq_rel) == (kAsleep | 1); }

  /// Admits no further visitors.
  void close() { gate_.fetch_and(~kOpen, std::memory_order_relaxed); }
  /// True when all visitors have left.
  bool is_deserted() const { return (gate_.load(std::memory_order_acquire) & kVisitors) == 0; }
  /// After this call the last visitor's leave() reports that the caller sleeps.
  void fall_asleep() { gate_.fetch_or(kAsleep, std::memory_order_acq_rel); }
  void wake_up() { gate_.fetch_and(~kAsleep, std::memory_order_relaxed); }

  /// The exception of the lowest failing chunk; the call also clears it.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  static constexpr std::uint32_t kOpen = 1U << 31;
  static constexpr std::uint32_t kAsleep = 1U << 30;
  static constexpr std::uint32_t kVisitors = kAsleep - 1;

  static bool is_empty(std::uint64_t range) { return static_cast<std::uint32_t>(range) >= range >> 32; }

  // Returns -1 when no chunk is left.
  std::int64_t claim(bool from_the_back) {
    std::uint64_t range = unclaimed_.load(std::memory_order_relaxed);
    while (!is_empty(range)) {
      const std::uint64_t rest = from_the_back ? range - (std::uint64_t{1} << 32) : range + 1;
      if (unclaimed_.compare_exchange_weak(range, rest, std::memory_order_relaxed)) {
        return static_cast<std::int64_t>(from_the_back ? rest >> 32 : range & 0xffffffffU);
      }
    }
    return -1;
  }

  // The first two cache lines hold the data that a worker reads in order to take part; all threads write the first
  // line.
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  std::atomic<std::uint32_t> most_visitors_{0};
  std::atomic<std::uint64_t> unclaimed_{0};  // begin in the low half, end in the high one
  std::optional<ChunkBody> body_;
  alignas(64) ThreadState state_;
  std::mutex error_mutex_;
  std::int64_t error_chunk_ = 0;
  std::exception_ptr error_;
};

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
