#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/span.h>
#include <tandem/core/span_totals.h>
#include <tandem/core/step_facts.h>

namespace tandem::inline v0 {

namespace core {
class GpuPhases;
}

/// Sums over whole steps, see StepTimes::whole_steps().
struct StepSums {
  std::int64_t count = 0;                // number of steps
  double longest = 0;                    // wall-clock seconds of the longest step
  double elapsed = 0;                    // wall-clock seconds
  std::array<double, kPhases> phases{};  // seconds in each phase
  std::vector<double> waits =
      {};                // seconds in `reduce`, `collective` and `pipeline` of each of the last steps, up to 64
  EffortSums efforts{};  // of all threads that work for the rank
  StepFacts facts{};     // at the end of the last step; `rows` is the mean over all steps
  /// Whether these are the last steps (up to 63) in the time of the rank's GPU. The seconds of efforts that the host
  /// spends under the work of the GPU are then 0.
  bool is_gpu_time = false;
};

/// While it exists, collects the time that phases take on the thread that made it, which must be the training thread:
///
///     StepTimes times;
///     train();
///     fmt::print(stderr, "{}", parallel::diagnose(times));
///
/// If ranks are threads, each rank makes its own StepTimes in the function that spawn() runs. Work of the program's
/// other threads, for example loader workers, is not counted. A phase inside another phase is subtracted from the outer
/// one: phases are disjoint, and their sum is at most the elapsed time. The host runs ahead of a GPU, so whole_steps()
/// has the times of the rank's GPU instead, if it trains on one: from where the GPU reaches the beginning of a phase to
/// where it reaches the end. The other functions, and whole_steps() of a rank with several GPUs, have those of the
/// host.
class TANDEM_API StepTimes {
 public:
  /// Starts collecting, with all times 0. With `populates`, blocks of memory that the system gives meanwhile (up to 256
  /// MiB each) are taken into possession at once, so that this is not counted as the work of the op that touches them
  /// first.
  explicit StepTimes(bool populates = true);
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
  /// than the others and may have waited for other things. If only one step was made, the sums cover that step. Waits
  /// for the GPU.
  StepSums whole_steps() const;
  /// Restarts all times at 0. Call this on the thread that made the object.
  void reset();

 private:
  friend class core::SpanThread;
  using Clock = core::Span::Clock;
  using Times = std::array<std::chrono::nanoseconds, kPhases>;
  struct Point {
    Clock::time_point at{};
    Times phases{};
    std::uint64_t gpu_phase = 0;  // the number of the next phase on a GPU
  };
  void begin_step() noexcept;
  void add(Phase phase, std::chrono::nanoseconds time, Clock::time_point now) noexcept;

  StepSums host_steps() const;
  std::vector<std::uint64_t> gpu_ends() const;

  static constexpr std::size_t kWaits = 64;

  std::shared_ptr<core::SpanThread> thread_;
  std::shared_ptr<core::GpuPhases> gpus_;  // null in a build without CUDA
  std::thread::id trains_ = std::this_thread::get_id();
  // The members below are guarded by the lock of *thread_.
  Clock::time_point started_;
  Times phases_{};
  std::int64_t steps_ = 0;
  std::uint64_t first_gpu_phase_ = 0;
  Point first_end_;     // end of the first step
  Point previous_end_;  // end of the step before the last
  Point last_end_;
  std::array<std::chrono::nanoseconds, kWaits> waits_{};  // wait of step i at i % kWaits, except the last step
  std::array<std::uint64_t, kWaits> gpu_ends_{};          // Point::gpu_phase at the end of step i, likewise
  EffortSums first_efforts_{};                            // until the end of the first step ...
  EffortSums last_efforts_{};                             // ... and of the last one
  std::chrono::nanoseconds longest_{0};                   // of the steps before the last, without the first
  StepFacts facts_{};                                     // at the end of the last step
  double rows_ = 0;                                       // at the end of each update, together
  std::int64_t updates_ = 0;                              // of one optimiser or several in a step

  bool populates_;
  core::SpanTotals totals_;  // has a lock of its own
};

}  // namespace tandem::inline v0
