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

/// The phases of a training step. Each phase is recorded where the work happens; the remaining time of a step (the
/// loss, metrics, the loop's own work) belongs to no phase.
enum class Phase : std::uint8_t {
  input,       // waiting for the next batch of a DataLoader
  scatter,     // splitting the batch, in DataParallel
  replicate,   // copying the module's parameters to the replicas, in DataParallel
  forward,     // a module's forward pass with gradients recorded (evaluation belongs to no phase); in DataParallel from
               // the first replica's start to the last one's end, including their loss
  gather,      // joining outputs or losses, in DataParallel
  backward,    // Tensor::backward(), without the phases inside it
  reduce,      // exchange not hidden by the backward pass: adding replicas' gradients, waiting for ranks
  collective,  // ProcessGroup calls made by the training loop, for example barrier(), without calls inside `reduce` and
               // `pipeline`
  optimizer,   // Optimizer::step()
  replay,      // replay of a captured step, without the phases inside it
  pipeline     // in a Pipeline, waiting for other stages and handing over, collectives included
};

/// Number of phases.
inline constexpr std::size_t kPhases = 11;
/// "input", "scatter", ...
TANDEM_API const char* to_string(Phase phase) noexcept;

namespace core {
class PhaseThread;
}

namespace detail {
/// Number of existing StepTimes objects, plus one if the process has a ProgressPage.
TANDEM_API extern std::atomic<int> step_time_collectors;
/// An open phase: its thread (null if nothing is collected), the number of phases around it on that thread, and its
/// serial number. `outer` is the phase around it on this process's ProgressPage, if it has one.
struct OpenPhase {
  core::PhaseThread* thread = nullptr;
  std::size_t depth = 0;
  std::uint64_t number = 0;
  bool is_noted = false;
  std::int32_t outer = -1;
};
/// Opens a phase, see PhaseScope.
TANDEM_API OpenPhase begin_phase(Phase phase, const void* by) noexcept;
/// Closes a phase and the open phases inside it. Does nothing if the phase is already closed or belongs to another
/// thread.
TANDEM_API void end_phase(const OpenPhase& open) noexcept;
}  // namespace detail

/// Sums over whole steps, see StepTimes::whole_steps().
struct StepSums {
  std::int64_t count = 0;                // number of steps
  double elapsed = 0;                    // wall-clock seconds
  std::array<double, kPhases> phases{};  // seconds in each phase
  std::vector<double> waits =
      {};  // seconds in `reduce`, `collective` and `pipeline` of each of the last steps, up to 64
};

/// While it exists, collects the time that phases take on the thread that made it, which must be the training thread:
///
///     StepTimes times;
///     train();
///     fmt::print(stderr, "{}", parallel::diagnose(times));
///
/// If ranks are threads, each rank makes its own StepTimes in the function that spawn() runs. Work of the program's
/// other threads, for example loader workers, is not counted. A phase inside another phase is subtracted from the outer
/// one: phases are disjoint, and their sum is at most the elapsed time. On GPUs the times are those of the host, which
/// runs ahead of the GPU.
class TANDEM_API StepTimes {
 public:
  /// Starts collecting, with all times 0.
  StepTimes();
  ~StepTimes();
  StepTimes(const StepTimes&) = delete;
  StepTimes& operator=(const StepTimes&) = delete;

  /// Seconds in `phase` since construction or reset(), without phases that are still open.
  double seconds(Phase phase) const;
  /// Wall-clock seconds since construction or reset().
  double elapsed() const;
  /// Number of steps since construction or reset(). Optimisers that step in turn make one step together.
  std::int64_t steps() const;
  /// Sums from the end of the first step to the end of the last one. The first step is left out because it is slower
  /// than the others and may have waited for other things. If only one step was made, the sums cover that step.
  StepSums whole_steps() const;
  /// Restarts all times at 0. Call this on the thread that made the object.
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
  // The members below are guarded by the lock of *thread_.
  Clock::time_point started_;
  Times phases_{};
  std::int64_t steps_ = 0;
  Point first_end_;     // end of the first step
  Point previous_end_;  // end of the step before the last
  Point last_end_;
  std::array<std::chrono::nanoseconds, kWaits> waits_{};  // wait of step i at i % kWaits, except the last step
};

/// Counts the lifetime of this object as `phase` on its thread, without the phases inside it. The scope must end on the
/// thread where it began: elsewhere its time is lost, and `phase` is no longer counted on the first thread. `by`
/// identifies the object that does the work, if several take part in one step. The cost is a relaxed load and a branch
/// when nothing collects.
class PhaseScope {
 public:
  [[nodiscard]] explicit PhaseScope(Phase phase, const void* by = nullptr) noexcept {
    if (detail::step_time_collectors.load(std::memory_order_relaxed) != 0) {
      open_ = detail::begin_phase(phase, by);
    }
  }
  ~PhaseScope() {
    if (open_.thread != nullptr || open_.is_noted) {
      detail::end_phase(open_);
    }
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  detail::OpenPhase open_;
};

}  // namespace tandem::inline v0
