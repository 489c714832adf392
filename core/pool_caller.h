#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
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

}  // namespace tandem::inline v0::core
