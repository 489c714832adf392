#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// What the time of a training step goes to. All are told apart where they happen; what a step takes beyond them (a
/// plain module's forward pass, a loss, metrics) is the rest of its time.
enum class Phase : std::uint8_t {
  input,      // waiting for a DataLoader's next batch
  scatter,    // cutting the batch up, in DataParallel
  replicate,  // making replicas equal to the module, in DataParallel
  forward,    // of a parallel wrapper; all replicas, from the first one's start to the last one's end, with their loss
  gather,     // joining outputs, or losses, in DataParallel
  backward,   // Tensor::backward(), but for phases within it
  reduce,     // what the backward pass does not hide: adding replicas' gradients, waiting for other ranks'
  optimizer   // Optimizer::step()
};

/// How many there are.
inline constexpr std::size_t kPhases = 8;
/// "input", "scatter", ...
TANDEM_API const char* to_string(Phase phase) noexcept;

namespace core {
/// The time that phases took, and how many of each ended. Never reset, so that several may read it.
struct PhaseAccount {
  std::array<std::atomic<std::int64_t>, kPhases> nanoseconds{};  // in each phase, without those within it
  std::array<std::atomic<std::int64_t>, kPhases> ended{};        // how often
};
}  // namespace core

namespace detail {
/// How many StepTimes there are.
TANDEM_API extern std::atomic<int> step_time_collectors;
/// Whether the phase begins here on the calling thread, and is not within the same one already.
TANDEM_API bool begin_phase(Phase phase) noexcept;
/// Adds to the account of the calling thread's rank, where ranks are threads, or of the process.
TANDEM_API void end_phase(Phase phase, std::chrono::nanoseconds time) noexcept;
}  // namespace detail

/// Collects the time that phases take while it exists, in this process or, where ranks are threads, in the rank that
/// made it:
///
///     StepTimes times;
///     train();
///     fmt::print(stderr, "{}", parallel::diagnose(times));
///
/// All are wall times of the thread that trains, and a phase within another is no part of that: so the phases are
/// disjoint, and their sum is at most the time of the steps (but where several threads train at once). On GPUs they are
/// times of the host, which runs ahead of them. A step that is replayed from a recording counts, but has hardly any
/// phases: nearly all of it is the rest.
class TANDEM_API StepTimes {
 public:
  /// Starts at 0.
  StepTimes() noexcept;
  ~StepTimes();
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  /// Since it was made, or reset.
  double seconds(Phase phase) const noexcept;
  /// All time since then, on the clock.
  double elapsed() const noexcept;
  /// How often the optimiser stepped.
  std::int64_t steps() const noexcept;
  /// Starts again at 0.
  void reset() noexcept;

 private:
  std::int64_t since(Phase phase) const noexcept;

  const core::PhaseAccount* account_;
  std::array<std::int64_t, kPhases> start_{};
  std::int64_t first_step_ = 0;
  std::chrono::steady_clock::time_point began_;
};

/// Its life is counted as time of `phase`, but for other phases within it, on the same thread. Costs a relaxed load and
/// a branch when nothing collects.
class PhaseScope {
 public:
  [[nodiscard]] explicit PhaseScope(Phase phase) noexcept
      : phase_(phase),
        counts_(detail::step_time_collectors.load(std::memory_order_relaxed) != 0 && detail::begin_phase(phase)) {
    if (counts_) {
      start_ = std::chrono::steady_clock::now();
    }
  }
  ~PhaseScope() {
    if (counts_) {
      detail::end_phase(phase_, std::chrono::steady_clock::now() - start_);
    }
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase phase_;
  bool counts_;
  std::chrono::steady_clock::time_point start_;  // not set where nothing is counted
};

}  // namespace tandem::inline v0
