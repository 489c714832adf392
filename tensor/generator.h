#pragma once

#include <atomic>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/step_state.h>

namespace tandem::inline v0 {

/// Counter-based random numbers (Philox4x32-10): draw k of a seed is a function of (seed, k), so results depend
/// neither on threads nor on the device. Drawing reserves a range of the counter; reserving is thread-safe, but the
/// order of two threads' draws is theirs to fix (give each thread its own generator, see GeneratorScope).
class TANDEM_API Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) noexcept : seed_(seed) {}
  ~Generator();
  Generator(const Generator&) = delete;  // a generator has one place in its sequence
  Generator& operator=(const Generator&) = delete;

  /// Restarts at the beginning of `seed`'s sequence.
  void manual_seed(std::uint64_t seed) noexcept;
  /// What it was seeded with.
  std::uint64_t seed() const noexcept { return seed_; }
  /// Position in the sequence, in blocks of four numbers; with the seed this is the whole state.
  std::uint64_t offset() const noexcept { return offset_.load(std::memory_order_relaxed); }
  /// Goes on from that position.
  void set_offset(std::uint64_t offset) noexcept { offset_.store(offset, std::memory_order_relaxed); }
  /// Takes `blocks` of the counter and returns where they begin.
  std::uint64_t reserve(std::uint64_t blocks);
  /// What a captured step adds to the position of its draws.
  const kernels::StepState* state() const noexcept { return &state_; }
  /// A captured step runs again: takes `blocks` of the counter, and until end_replay() the draws that were recorded
  /// from position `recorded` on come from there.
  void begin_replay(std::uint64_t recorded, std::uint64_t blocks) noexcept {
    state_.random_offset = reserve_blocks(blocks) - recorded;
  }
  /// The replay is over: draws come from where the counter stands.
  void end_replay() noexcept { state_.random_offset = 0; }

 private:
  std::uint64_t reserve_blocks(std::uint64_t blocks) noexcept {
    return offset_.fetch_add(blocks, std::memory_order_relaxed);
  }

  bool recorded_ = false;  // a captured step may refer to it
  std::uint64_t seed_;
  std::atomic<std::uint64_t> offset_{0};
  kernels::StepState state_;
};

/// The generator that draws on this thread use: the one of the innermost GeneratorScope, else the process's.
TANDEM_API Generator& current_generator() noexcept;
/// Seeds current_generator().
TANDEM_API void manual_seed(std::uint64_t seed) noexcept;

/// Draws of this thread come from `generator` for a scope.
class TANDEM_API GeneratorScope {
 public:
  [[nodiscard]] explicit GeneratorScope(Generator& generator) noexcept;
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator* saved_;
};

}  // namespace tandem::inline v0
