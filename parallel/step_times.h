#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// What the time of a data-parallel training step goes to. DataParallel tells the first four and `reduce` apart by
/// itself; whoever calls backward() and step() puts a PhaseScope around them.
enum class Phase : std::uint8_t {
  scatter,    // cutting the batch up
  replicate,  // making the replicas equal to the module
  forward,    // all replicas, from the first one's start to the last one's end; a loss within them included
  gather,     // joining outputs, or losses
  backward,   // backward(), but for `reduce`
  reduce,     // adding the replicas' gradients to the module's
  optimizer   // step()
};

/// How many there are.
inline constexpr std::size_t kPhases = 7;
/// "scatter", ...
TANDEM_API const char* to_string(Phase phase) noexcept;

namespace detail {
/// How many StepTimes there are.
TANDEM_API extern std::atomic<int> step_time_collectors;
/// Adds to the account of the process.
TANDEM_API void add_time(Phase phase, std::chrono::nanoseconds time) noexcept;
}  // namespace detail

/// Collects the time that phases take in this process, all threads together, while it exists:
///
///     parallel::StepTimes times;
///     Tensor loss = nn::cross_entropy(dp(x), y);
///     { const parallel::PhaseScope timed(parallel::Phase::backward); loss.backward(); }
///     fmt::print("gather {} us, reduce {} us", 1e6 * times.seconds(parallel::Phase::gather), ...);
///
/// All are wall times of the thread that calls, `reduce` of the one of the first device, on which everything else of
/// the backward pass has ended by then: so the phases are disjoint, and their sum is at most the time of the step (but
/// where several threads train at once). On GPUs they are times of the host, which runs ahead of them.
class TANDEM_API StepTimes {
 public:
  /// Starts at 0.
  StepTimes() noexcept;
  ~StepTimes();
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  /// Since it was made, or reset.
  double seconds(Phase phase) const noexcept;
  /// Starts again at 0.
  void reset() noexcept;

 private:
  std::array<std::int64_t, kPhases> start_{};
};

/// Its life is counted as time of `phase`. Costs a relaxed load and a branch when nothing collects.
class PhaseScope {
 public:
  [[nodiscard]] explicit PhaseScope(Phase phase) noexcept
      : phase_(phase), counts_(detail::step_time_collectors.load(std::memory_order_relaxed) != 0) {
    if (counts_) {
      start_ = std::chrono::steady_clock::now();
    }
  }
  ~PhaseScope() {
    if (counts_) {
      detail::add_time(phase_, std::chrono::steady_clock::now() - start_);
    }
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Phase phase_;
  bool counts_;
  std::chrono::steady_clock::time_point start_;  // not set where nothing is counted
};

}  // namespace tandem::inline v0::parallel
