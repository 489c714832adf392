#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/device.h>

// Internal: the operations of a step in a form that allows comparing two runs.

namespace tandem::inline v0::graph {

/// Eight bytes of a launch's arguments: a number, or an address in memory that the step allocated.
struct Word {
  std::uint64_t value;      // the number, or the offset from the start of the block
  std::uint32_t block = 0;  // 0 for a number; else the number of the allocation plus one
  bool operator==(const Word&) const = default;
};

/// An operation of a step.
struct Event {
  enum class Kind : std::uint8_t { allocate, free, launch, draw, work, lane, use, join };
  Kind kind;
  const char* name = "";           // name of a launch or of host work
  const void* identity = nullptr;  // launch: function that runs it; draw: the generator
  std::uint64_t number = 0;        // bytes of an allocation, index of a freed or used one, blocks of a draw, a lane,
                                   // what host work does
  std::uint64_t place = 0;         // device of an allocation or launch; position of a draw, which differs between runs
  std::size_t first_word = 0;      // of a launch: index of its first word
  std::size_t words = 0;           // of a launch: number of words
};

/// All operations of a step, in order. Operations from a `lane` event to the next `lane` or `join` event belong to that
/// lane. A replay runs the lanes before a `join` at the same time. The first use of an allocation by a lane is a `use`
/// event, except in the lane that made the allocation.
struct Trace {
  std::vector<Event> events{};
  std::vector<Word> words{};
};

/// Compares a run with an earlier one during the run.
class Comparison {
 public:
  /// A null `before` means that no earlier run exists.
  explicit Comparison(const Trace* before) : before_(before) {}

  /// Compares the last event of `now`. After the first difference, later events are ignored.
  void add(const Trace& now);
  /// Marks the end of the run.
  void end(const Trace& now);
  void differ(std::string how) {
    if (equal()) {
      difference_ = std::move(how);
    }
  }
  /// Whether an earlier run exists and this run was equal to it so far.
  bool equal() const noexcept { return before_ != nullptr && !difference_.has_value(); }
  /// The first difference; empty if both runs were equal.
  std::string difference() const { return difference_.value_or(""); }

 private:
  bool same_words(const Event& before, const Event& now, const Trace& trace) const;

  const Trace* before_;
  std::size_t launches_ = 0;
  std::uint64_t drawn_before_ = 0;
  std::uint64_t drawn_now_ = 0;
  std::optional<std::string> difference_;
};

/// Converts a device to Event::place, and back.
std::uint64_t place_of(Device device) noexcept;
Device device_at(std::uint64_t place) noexcept;

/// Assigns each allocation of a trace a position in one memory block per device. Allocations that are never in use
/// together share bytes; lanes that a replay runs at the same time share none.
struct Plan {
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGpuAlignment = 256;
  struct Block {
    std::uint64_t place;
    std::size_t bytes;
  };
  std::vector<Block> blocks;
  std::vector<std::size_t> block;    // block of each allocation
  std::vector<std::size_t> offsets;  // offset of each allocation in its block
  std::size_t bytes = 0;             // size of all blocks
  std::size_t requested = 0;         // size of all allocations together
};
Plan make_plan(const Trace& trace);

}  // namespace tandem::inline v0::graph
