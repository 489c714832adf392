#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/device.h>

// Internal: what a step did, in a form in which two runs can be compared.

namespace tandem::inline v0::graph {

/// Eight bytes of a launch's arguments: a number, or an address in memory that the step allocated.
struct Word {
  std::uint64_t value;      // the number, or the distance from the beginning of the block
  std::uint32_t block = 0;  // 0: a number; else one more than the number of the allocation
  bool operator==(const Word&) const = default;
};

/// Something that a step did.
struct Event {
  enum class Kind : std::uint8_t { allocate, free, launch, draw, work };
  Kind kind;
  const char* name = "";           // of a launch, or of work
  const void* identity = nullptr;  // of a launch: how it is run; of a draw: the generator
  std::uint64_t number = 0;        // bytes of an allocation, which one is freed, blocks of a draw
  std::uint64_t place = 0;         // device of an allocation or launch; position of a draw, which differs between runs
  std::size_t first_word = 0;      // of a launch
  std::size_t words = 0;           // of a launch
};

/// All that a step did, in order.
struct Trace {
  std::vector<Event> events{};
  std::vector<Word> words{};
};

/// Compares a run with an earlier one while it goes on.
class Comparison {
 public:
  /// With null there is nothing to compare with.
  explicit Comparison(const Trace* before) : before_(before) {}

  /// The last event of `now`. After the first difference nothing is looked at any more.
  void add(const Trace& now);
  /// No more comes.
  void end(const Trace& now);
  void differ(std::string how) {
    if (equal()) {
      difference_ = std::move(how);
    }
  }
  /// Whether there is an earlier run, and this one was the same so far.
  bool equal() const noexcept { return before_ != nullptr && !difference_.has_value(); }
  /// What was different first; empty if nothing was.
  std::string difference() const { return difference_.value_or(""); }

 private:
  bool same_words(const Event& before, const Event& now, const Trace& trace) const;

  const Trace* before_;
  std::size_t launches_ = 0;
  std::uint64_t drawn_before_ = 0;
  std::uint64_t drawn_now_ = 0;
  std::optional<std::string> difference_;
};

/// Event::place of a device, and back.
std::uint64_t place_of(Device device) noexcept;
Device device_at(std::uint64_t place) noexcept;

/// Where each allocation of a trace lies in one block of memory for each device. Those that are never in use together
/// share bytes.
struct Plan {
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGpuAlignment = 256;
  struct Block {
    std::uint64_t place;
    std::size_t bytes;
  };
  std::vector<Block> blocks;
  std::vector<std::size_t> block;    // by number of the allocation: which of them
  std::vector<std::size_t> offsets;  // by number of the allocation: where in it
  std::size_t bytes = 0;             // of all blocks
  std::size_t requested = 0;         // of all allocations together
};
Plan make_plan(const Trace& trace);

}  // namespace tandem::inline v0::graph
