#pragma once

#include <atomic>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/step_state.h>

namespace tandem::inline v0 {

/// A counter-based random number generator (Philox4x32-10). Draw k of a seed is a function of (seed, k), so results
/// depend on neither threads nor device. Each draw reserves a range of the counter. Reserving is thread-safe, but the
/// program must fix the order of two threads' draws: give each thread its own generator (see GeneratorScope).
class TANDEM_API Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) noexcept : seed_(seed) {}
  /// A generator for a part of the work that draws from `whole`, such as a replica: another sequence at the present
  /// position of `whole`. Replays move its draws with those of `whole`, so it need not outlive a captured step.
  Generator(std::uint64_t seed, Generator& whole) noexcept
      : seed_(seed), offset_(whole.offset()), whole_(whole.whole_ != nullptr ? whole.whole_ : &whole) {}
  ~Generator();
  Generator(const Generator&) = delete;  // a copy would repeat the draws
  Generator& operator=(const Generator&) = delete;

  /// Restarts at the beginning of `seed`'s sequence.
  void manual_seed(std::uint64_t seed) noexcept;
  /// The seed of the current sequence.
  std::uint64_t seed() const noexcept { return seed_; }
  /// Position in the sequence, in blocks of four numbers. Seed and offset together are the whole state.
  std::uint64_t offset() const noexcept { return offset_.load(std::memory_order_relaxed); }
  /// Continues from position `offset`.
  void set_offset(std::uint64_t offset) noexcept { offset_.store(offset, std::memory_order_relaxed); }
  /// Reserves `blocks` of the counter and returns the first one.
  std::uint64_t reserve(std::uint64_t blocks);
  /// The offset that a replay of a captured step adds to the position of its draws.
  const kernels::StepState* state() const noexcept { return whole_ != nullptr ? whole_->state() : &state_; }
  /// Prepares the replay of a captured step: reserves `blocks` of the counter. Until end_replay(), draws recorded from
  /// position `recorded` on come from the reserved range.
  void begin_replay(std::uint64_t recorded, std::uint64_t blocks) noexcept {
    state_.random_offset = reserve_blocks(blocks) - recorded;
  }
  /// Ends the replay: draws come from the current position of the counter.
  void end_replay() noexcept { state_.random_offset = 0; }

 private:
  std::uint64_t reserve_blocks(std::uint64_t blocks) noexcept {
    return offset_.fetch_add(blocks, std::memory_order_relaxed);
  }

  bool recorded_ = false;  // a captured step may refer to this generator
  std::uint64_t seed_;
  std::atomic<std::uint64_t> offset_{0};
  Generator* whole_ = nullptr;
  kernels::StepState state_;
};

/// The generator for draws on this thread: that of the innermost GeneratorScope, or the process-wide one.
TANDEM_API Generator& current_generator() noexcept;
/// Seeds current_generator().
TANDEM_API void manual_seed(std::uint64_t seed) noexcept;

/// Draws on this thread use `generator` for a scope.
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
