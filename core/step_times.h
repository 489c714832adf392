#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// What the time of a training step goes to. All are told apart where they happen; what a step takes beyond them (the
/// loss, metrics, the loop's own work) is the rest of its time.
enum class Phase : std::uint8_t {
  input,       // waiting for a DataLoader's next batch
  scatter,     // cutting the batch up, in DataParallel
  replicate,   // making replicas equal to the module, in DataParallel
  forward,     // of a module, where gradients are recorded: evaluation is the rest. Of DataParallel from the first
               // replica's start to the last one's end, with their loss
  gather,      // joining outputs, or losses, in DataParallel
  backward,    // Tensor::backward(), but for phases within it
  reduce,      // what the backward pass does not hide: adding replicas' gradients, waiting for other ranks'
  collective,  // calls of a ProcessGroup that the loop makes itself, as barrier(), but for those within `reduce`
  optimizer,   // Optimizer::step()
  replay       // of a captured step, but for phases within it
};

/// How many there are.
inline constexpr std::size_t kPhases = 10;
/// "input", "scatter", ...
TANDEM_API const char* to_string(Phase phase) noexcept;

namespace core {
class PhaseThread;
}

namespace detail {
/// How many StepTimes there are.
TANDEM_API extern std::atomic<int> step_time_collectors;
/// An open phase: the thread that it is on, null where nothing is counted; how many are around it there; its number.
struct OpenPhase {
  core::PhaseThread* thread = nullptr;
  std::size_t depth = 0;
  std::uint64_t number = 0;
};
/// See PhaseScope.
TANDEM_API OpenPhase begin_phase(Phase phase, const void* by) noexcept;
/// With those within it; does nothing if it is no longer open, or another thread's.
TANDEM_API void end_phase(const OpenPhase& open) noexcept;
}  // namespace detail

/// Whole steps, see StepTimes::whole_steps().
struct StepSums {
  std::int64_t count = 0;                // steps
  double elapsed = 0;                    // seconds, on the clock
  std::array<double, kPhases> phases{};  // seconds in each
  std::vector<double> waits = {};        // seconds in `reduce` and `collective`, of each of the last steps, up to 64
};

/// Collects the time that phases take on the thread that made it, the one that trains, while it exists:
///
///     StepTimes times;
///     train();
///     fmt::print(stderr, "{}", parallel::diagnose(times));
///
/// So where ranks are threads each has its own, made in the function that spawn() runs; and what a program's other
/// threads do beside the training, as the workers of a loader, is not counted. A phase within another is no part of
/// that: phases are disjoint, and their sum is at most the time that passed. On GPUs they are times of the host, which
/// runs ahead of them.
class TANDEM_API StepTimes {
 public:
  /// Starts at 0.
  StepTimes();
  ~StepTimes();
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  /// In that phase since it was made, or reset, without what is still going on.
  double seconds(Phase phase) const;
  /// Seconds since then, on the clock.
  double elapsed() const;
  /// How often optimisers stepped since then. Several that step in turn make one step together.
  std::int64_t steps() const;
  /// From the end of the first step, which is slower than others and may have had to wait for other things, to the end
  /// of the last one. Where there is but one, that one.
  StepSums whole_steps() const;
  /// Starts again at 0; on its own thread.
  void reset();

 private:
  friend core::PhaseThread;
  using Clock = std::chrono::steady_clock;
  using Times = std::array<std::chrono::nanoseconds, kPhases>;
  struct Point {
    Clock::time_point at{};
    Times phases{};
  };
  void begin_step() noexcept;
  void end_step(Clock::time_point now) noexcept;

  static constexpr std::size_t kWaits = 64;

  std::shared_ptr<core::PhaseThread> thread_;
  // Under its lock.
  Clock::time_point started_;
  Times phases_{};
  std::int64_t steps_ = 0;
  Point first_end_;     // of a step
  Point previous_end_;  // that before the last
  Point last_end_;
  std::array<std::chrono::nanoseconds, kWaits> waits_{};  // of step i, from 0, at place i % kWaits; not yet the last
};

/// Its life is counted as time of `phase`, but for other phases within it, on the same thread. There it must end: on
/// another one it is not counted, and `phase` no more on this one. `by` is who does it, where several do in one step.
/// Costs a relaxed load and a branch when nothing collects.
class PhaseScope {
 public:
  [[nodiscard]] explicit PhaseScope(Phase phase, const void* by = nullptr) noexcept {
    if (detail::step_time_collectors.load(std::memory_order_relaxed) != 0) {
      open_ = detail::begin_phase(phase, by);
    }
  }
  ~PhaseScope() {
    if (open_.thread != nullptr) {
      detail::end_phase(open_);
    }
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  detail::OpenPhase open_;
};

}  // namespace tandem::inline v0
