#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/step_times.h>

// Internal: the data on the steps of ranks that diagnose() evaluates.

namespace tandem::inline v0::telemetry {

/// The number of processor cores whose numbers a RankSteps knows.
inline constexpr std::size_t kKnownCores = 96;

/// Times of a rank's steps, in microseconds per step.
struct RankSteps {
  double count = 0;
  double step_us = 0;
  double host = 0;                   // a number that identifies the rank's machine
  double cores = 0;                  // cores that the ranks of that machine may use together
  double threads = 0;                // that compute for this rank
  double is_process = 0;             // 1: no other rank shares its process
  std::array<double, 2> bound_to{};  // a bit for each of the first 96 cores, which this process may use
  double longest_us = 0;             // the longest step
  double latency_us = 0;             // duration of the smallest exchange; 0: not measured
  double is_gpu_time = 0;            // 1: see StepSums
  double peak_bytes = 0;             // in use at `peak_place`
  std::array<double, kPhases> us{};
  StepFacts facts{};
  EffortSums efforts{};         // per step, in microseconds
  std::vector<double> waits{};  // wait() of each of the last steps
  std::string peak_place{};     // where the most memory was in use; empty: unknown

  static RankSteps of(const StepTimes& times);
  static RankSteps from_values(std::span<const double> values);
  /// The values to exchange; as many for each rank.
  std::vector<double> to_values() const;

  double of(Phase phase) const { return us[static_cast<std::size_t>(phase)]; }
  double of(Fact fact) const { return facts[static_cast<std::size_t>(fact)]; }
  const EffortSum& of(Effort effort) const { return efforts[static_cast<std::size_t>(effort)]; }
  double compute() const { return of(Phase::forward) + of(Phase::backward) + of(Phase::replay); }
  double wait() const { return of(Phase::reduce) + of(Phase::collective) + of(Phase::pipeline); }
  /// Whether most of wait() is that for other stages of a pipeline.
  bool is_pipelined() const { return 2 * of(Phase::pipeline) > wait(); }
  /// The time in which other ranks may have to wait for this one.
  double busy() const { return step_us - wait(); }
  /// Whether the times are those of a host that runs ahead of its GPUs.
  bool runs_ahead() const { return of(Fact::gpu) != 0 && is_gpu_time == 0; }
  /// The time outside all phases.
  double rest() const;
  /// The copying of DataParallel. With `alone`, includes `reduce`, which then holds only the adding up of its
  /// gradients.
  double copying(bool alone) const;
};

/// The steps of all ranks.
class Ranks {
 public:
  explicit Ranks(std::vector<RankSteps> ranks);

  std::size_t count() const { return ranks_.size(); }
  const std::vector<RankSteps>& all() const { return ranks_; }
  const RankSteps& mean() const { return mean_; }
  /// Numbers of the ranks without steps.
  std::vector<std::size_t> without_steps() const;
  /// Numbers of the ranks that the others wait for: those closer to the slowest rank than to the fastest.
  std::vector<std::size_t> slow() const;
  /// "30 steps", "30 to 31 steps".
  std::string counts() const;
  /// Duration of the exchange, in microseconds: the wait of the last rank to arrive, which waits least and for no other
  /// rank. Averaged over steps; each step may have another last rank.
  double exchange() const;
  /// Mean over ranks of the time waited beyond exchange(), which is time waited for the last rank to arrive.
  double waiting() const;
  /// Whether the times of all ranks are those of their GPUs.
  bool is_gpu_time() const {
    return std::ranges::all_of(ranks_, [](const RankSteps& rank) { return rank.is_gpu_time == 1; });
  }
  /// How long collectives are on their way in a step, hidden or not, and how long the smallest one, in microseconds.
  /// The last rank to arrive waits for no other. 0: unknown, because they are launched on GPUs.
  double wire() const;
  double latency() const;
  /// On the machine with the most ranks per core: the number of ranks and the number of cores.
  std::pair<int, int> most_crowded() const;
  /// Cores of machines: those that ranks compute on, and all of them.
  struct CoreUse {
    int used = 0;
    int all = 0;
    bool is_bound = false;  // the ranks' processes may use no more
  };
  /// The cores of the machine with the largest part of idle ones.
  CoreUse idle_cores() const;

  /// The largest `part` of a rank.
  template <class Part>
  auto most(const Part& part) const {
    return std::invoke(part, *std::ranges::max_element(ranks_, std::ranges::less(), part));
  }
  /// The smallest `part` of a rank.
  template <class Part>
  auto least(const Part& part) const {
    return std::invoke(part, *std::ranges::min_element(ranks_, std::ranges::less(), part));
  }
  /// How much sooner the last rank would finish if no rank had that `part`.
  template <class Part>
  double saved_without(const Part& part) const {
    return most(&RankSteps::busy) - most([&](const RankSteps& rank) { return rank.busy() - part(rank); });
  }
  /// Mean of `part` over the ranks with these numbers.
  template <class Part>
  double mean_of(const std::vector<std::size_t>& numbers, const Part& part) const {
    double sum = 0;
    for (const std::size_t number : numbers) {
      sum += std::invoke(part, ranks_[number]);
    }
    return numbers.empty() ? 0 : sum / static_cast<double>(numbers.size());
  }
  /// Mean of `part` over all other ranks.
  template <class Part>
  double mean_of_others(const std::vector<std::size_t>& numbers, const Part& part) const {
    const double others = static_cast<double>(count() - numbers.size());
    const double all = std::invoke(part, mean_) * static_cast<double>(count());
    return others == 0 ? 0 : (all - mean_of(numbers, part) * static_cast<double>(numbers.size())) / others;
  }

 private:
  bool is_launched() const { return mean_.of(Fact::is_launched) != 0; }
  std::size_t common_waits() const;
  double least_wait(std::size_t steps_ago) const;

  std::vector<RankSteps> ranks_;
  RankSteps mean_;
};

}  // namespace tandem::inline v0::telemetry
