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

// Internal: what diagnose() asks about the steps of ranks.

namespace tandem::inline v0::parallel::detail {

/// What a rank's steps took, in microseconds per step.
struct RankSteps {
  double count = 0;
  double step_us = 0;
  double host = 0;   // a number of the machine that it runs on
  double cores = 0;  // that it, and the other ranks there, may use
  std::array<double, kPhases> us{};
  std::vector<double> waits{};  // wait() of each of the last steps

  static RankSteps of(const StepTimes& times);
  static RankSteps from_values(std::span<const double> values);
  /// As many for each rank.
  std::vector<double> to_values() const;

  double of(Phase phase) const { return us[static_cast<std::size_t>(phase)]; }
  double wait() const { return of(Phase::reduce) + of(Phase::collective); }
  /// The time in which others may wait for it.
  double busy() const { return step_us - wait(); }
  /// What is no phase.
  double rest() const;
  /// DataParallel's, with the adding up of its gradients where nothing else is in `reduce`.
  double copying(bool alone) const;
};

/// All of them.
class Ranks {
 public:
  explicit Ranks(std::vector<RankSteps> ranks);

  std::size_t count() const { return ranks_.size(); }
  const RankSteps& mean() const { return mean_; }
  /// By number.
  std::vector<std::size_t> without_steps() const;
  /// Those that the others wait for: nearer to the slowest than to the quickest.
  std::vector<std::size_t> slow() const;
  /// "30 steps", "30 to 31 steps".
  std::string counts() const;
  /// Microseconds that the rank waits which waits least, the last to come: for nobody, so that is the exchange itself.
  /// The mean over steps, in each of which it may be another rank.
  double exchange() const;
  /// The mean of what all wait beyond it: for the last to come.
  double waiting() const;
  /// Of the machine on which most ranks share a core: how many, and how many cores.
  std::pair<int, int> most_crowded() const;

  /// The largest `part` of a rank.
  template <class Part>
  auto most(const Part& part) const {
    return std::invoke(part, *std::ranges::max_element(ranks_, std::ranges::less(), part));
  }
  /// The smallest.
  template <class Part>
  auto least(const Part& part) const {
    return std::invoke(part, *std::ranges::min_element(ranks_, std::ranges::less(), part));
  }
  /// How much sooner the last rank would be done, had no rank that `part`.
  template <class Part>
  double saved_without(const Part& part) const {
    return most(&RankSteps::busy) - most([&](const RankSteps& rank) { return rank.busy() - part(rank); });
  }
  /// Of the ranks with these numbers; of the others.
  template <class Part>
  double mean_of(const std::vector<std::size_t>& numbers, const Part& part) const {
    double sum = 0;
    for (const std::size_t number : numbers) {
      sum += part(ranks_[number]);
    }
    return numbers.empty() ? 0 : sum / static_cast<double>(numbers.size());
  }
  /// See mean_of().
  template <class Part>
  double mean_of_others(const std::vector<std::size_t>& numbers, const Part& part) const {
    const double others = static_cast<double>(count() - numbers.size());
    const double all = part(mean_) * static_cast<double>(count());
    return others == 0 ? 0 : (all - mean_of(numbers, part) * static_cast<double>(numbers.size())) / others;
  }

 private:
  std::size_t common_waits() const;
  double least_wait(std::size_t steps_ago) const;

  std::vector<RankSteps> ranks_;
  RankSteps mean_;
};

/// What diagnose() says of them.
std::string diagnosis_of(const Ranks& ranks);

}  // namespace tandem::inline v0::parallel::detail
