#include <tandem/parallel/rank_steps.h>

#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tandem::inline v0::parallel::detail {

RankSteps RankSteps::of(const StepTimes& times) {
  const StepSums sums = times.whole_steps();
  RankSteps steps{.count = static_cast<double>(sums.count), .least_wait_us = 1e6 * sums.least_wait};
  const double per_step = 1e6 / std::max(1.0, steps.count);
  steps.step_us = per_step * sums.elapsed;
  std::ranges::transform(sums.phases, steps.us.begin(), [&](double seconds) { return per_step * seconds; });
  return steps;
}

RankSteps RankSteps::from_values(std::span<const double> values) {
  RankSteps steps{.count = values[0], .step_us = values[1], .least_wait_us = values[2]};
  std::ranges::copy(values.subspan(3), steps.us.begin());
  return steps;
}

std::vector<double> RankSteps::to_values() const {
  std::vector<double> values{count, step_us, least_wait_us};
  values.insert(values.end(), us.begin(), us.end());
  return values;
}

double RankSteps::rest() const { return std::max(0.0, step_us - std::accumulate(us.begin(), us.end(), 0.0)); }

double RankSteps::copying(bool alone) const {
  const double handling = of(Phase::scatter) + of(Phase::replicate) + of(Phase::gather);
  return handling > 0 && alone ? handling + of(Phase::reduce) : handling;
}

Ranks::Ranks(std::vector<RankSteps> ranks) : ranks_(std::move(ranks)) {
  std::vector<double> sum = RankSteps().to_values();
  for (const RankSteps& rank : ranks_) {
    std::ranges::transform(sum, rank.to_values(), sum.begin(), std::plus());
  }
  std::ranges::transform(sum, sum.begin(), [&](double value) { return value / static_cast<double>(ranks_.size()); });
  mean_ = RankSteps::from_values(sum);
}

std::vector<std::size_t> Ranks::without_steps() const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].count == 0) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

std::vector<std::size_t> Ranks::slow() const {
  const double middle = (most(&RankSteps::busy) + least(&RankSteps::busy)) / 2;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].busy() >= middle) {
      numbers.push_back(i);
    }
  }
  return numbers;
}

std::string Ranks::counts() const {
  const double low = least(&RankSteps::count);
  const double high = most(&RankSteps::count);
  if (low != high) {
    return fmt::format("{:.0f} to {:.0f} steps", low, high);
  }
  return fmt::format("{:.0f} step{}", low, low == 1 ? "" : "s");
}

}  // namespace tandem::inline v0::parallel::detail
