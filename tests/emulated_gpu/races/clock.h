#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

// Tells which accesses to memory are ordered by synchronisation, in whatever order the emulation runs threads.

namespace emulated_gpu::detail {

// Counts the events of a block that synchronise. Each block has its own time, which starts at 1.
using Time = std::uint32_t;

// A thread of the grid, by linear indices. The grid's first 2^22 blocks have numbers of their own.
class Who {
 public:
  Who() = default;
  Who(std::uint64_t block, unsigned thread) : number_(static_cast<std::uint32_t>(block << 10) | thread) {}
  std::uint32_t block() const { return number_ >> 10; }
  unsigned thread() const { return number_ & 1023; }
  std::uint32_t number() const { return number_; }
  bool operator==(const Who&) const = default;

 private:
  std::uint32_t number_ = 0;
};

// A thread's knowledge about threads that it did not meet: which of their accesses came before.
class View {
 public:
  bool empty() const { return before_.empty(); }
  // Adds the accesses of one thread, or of all threads of a block, that are older than `time`.
  void add(Who who, Time time) { raise(who.number(), time); }
  void add_block(std::uint32_t block, Time time) { raise(whole(block), time); }
  void merge(const View& other);
  bool knows(Who who, Time time) const;

 private:
  std::map<std::uint64_t, Time> before_;

  static std::uint64_t whole(std::uint32_t block) { return std::uint64_t{1} << 32 | block; }
  void raise(std::uint64_t key, Time time);
  bool has(std::uint64_t key, Time time) const;
};

enum class Scope { kBlock, kDevice };

// The clock of a running block: which of its threads have met, and what they know about other blocks.
//
// A barrier orders everything before it, for all threads; a meeting of a warp, for the lanes of its mask. Knowledge is
// passed on at these meetings. A fence followed by an atomic access hands a thread's knowledge to the cell. A thread
// that reads the cell and then has a fence takes the knowledge over.
class BlockClock {
 public:
  void begin(std::uint32_t block, unsigned threads);

  Time time(unsigned thread) const;
  void barrier();
  // The lanes `mask` of the warp whose first thread is `first` meet.
  void meet(unsigned first, unsigned mask);
  void fence(unsigned thread, Scope scope);
  // A strong load from a cell that holds `view`. The cell is in shared memory, where a fence for the block suffices
  // (kBlock), or in device memory.
  void load(unsigned thread, const View& view, Scope scope);
  // A strong store to such a cell. A store that `keeps` is part of an atomic operation, which has read the cell: the
  // view of the cell remains, and the thread's knowledge is added.
  void store(unsigned thread, View& view, Scope scope, bool keeps) const;

  // Whether the access of `who` at `time` is ordered before what `thread` does now.
  bool before(Who who, Time time, unsigned thread) const {
    const bool by_barrier = who.block() == block_ && (who.thread() == thread || time < barrier_);
    return by_barrier || before_by_fences_or_warp(who, time, thread);
  }

 private:
  static constexpr unsigned kWarp = 32;
  struct Fences {
    std::array<View, 2> seen;      // in cells, by scope: known after the next fence
    std::array<View, 2> released;  // at the last fence, by scope: for cells that the thread changes
  };
  std::uint32_t block_ = 0;
  unsigned count_ = 0;
  Time now_ = 1;
  Time barrier_ = 1;                // when the last barrier was
  std::array<Time, kWarp> full_{};  // when the lanes of a warp last met all together
  std::vector<Time> own_;           // when the thread last took part in anything else
  // met_[thread][lane]: accesses of this lane of the thread's warp that are older are known.
  std::vector<std::array<Time, kWarp>> met_;
  std::map<unsigned, Fences> fences_;
  std::vector<std::shared_ptr<const View>> known_;  // empty until a thread has learnt something

  bool before_by_fences_or_warp(Who who, Time time, unsigned thread) const;
  unsigned lanes(unsigned first) const;
  void share(unsigned first, unsigned end, std::uint64_t mask);
};

}  // namespace emulated_gpu::detail
