#include <tandem/telemetry/diagnosis.h>

#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/cores.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr std::size_t kFields = 5;  // in addition to the phases and the waits
constexpr std::size_t kMostWaits = 64;

// A number that is equal for ranks on one machine and almost always differs between machines.
double number_of_this_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return static_cast<double>(std::hash<std::string>{}(name) >> 11);  // 53 bits, which a double holds exactly
}

// Cores available to all ranks of this host. If ranks are processes, this process may be bound to cores that the other
// ranks do not use, so count all cores of the machine.
int cores_of_all_ranks() {
  return core::thread_state().rank != nullptr ? core::available_cores()
                                              : static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

RankSteps RankSteps::of(const StepTimes& times) {
  const StepSums sums = times.whole_steps();
  RankSteps steps{.count = static_cast<double>(sums.count),
                  .host = number_of_this_host(),
                  .cores = static_cast<double>(cores_of_all_ranks())};
  const double per_step = 1e6 / std::max(1.0, steps.count);
  steps.step_us = per_step * sums.elapsed;
  std::ranges::transform(sums.phases, steps.us.begin(), [&](double seconds) { return per_step * seconds; });
  for (const double seconds : sums.waits) {
    steps.waits.push_back(1e6 * seconds);
  }
  return steps;
}

RankSteps RankSteps::from_values(std::span<const double> values) {
  RankSteps steps{.count = values[0], .step_us = values[1], .host = values[2], .cores = values[3]};
  const auto count = static_cast<std::size_t>(values[4]);
  std::ranges::copy(values.subspan(kFields, kPhases), steps.us.begin());
  const std::span<const double> waits = values.subspan(kFields + kPhases, count);
  steps.waits.assign(waits.begin(), waits.end());
  return steps;
}

std::vector<double> RankSteps::to_values() const {
  std::vector<double> values{count, step_us, host, cores, static_cast<double>(waits.size())};
  values.insert(values.end(), us.begin(), us.end());
  values.insert(values.end(), waits.begin(), waits.end());
  values.resize(kFields + kPhases + kMostWaits);
  return values;
}

double RankSteps::rest() const { return std::max(0.0, step_us - std::accumulate(us.begin(), us.end(), 0.0)); }

double RankSteps::copying(bool alone) const {
  const double handling = of(Phase::scatter) + of(Phase::replicate) + of(Phase::gather);
  return handling > 0 && alone ? handling + of(Phase::reduce) : handling;
}

Ranks::Ranks(std::vector<RankSteps> ranks) : ranks_(std::move(ranks)) {
  const auto count = static_cast<double>(ranks_.size());
  for (const RankSteps& rank : ranks_) {
    mean_.count += rank.count / count;
    mean_.step_us += rank.step_us / count;
    std::ranges::transform(mean_.us, rank.us, mean_.us.begin(),
                           [&](double sum, double us) { return sum + us / count; });
  }
}

std::size_t Ranks::common_waits() const {
  return least([](const RankSteps& rank) { return rank.waits.size(); });
}

double Ranks::least_wait(std::size_t steps_ago) const {
  return least([&](const RankSteps& rank) { return rank.waits[rank.waits.size() - 1 - steps_ago]; });
}

double Ranks::exchange() const {
  const std::size_t steps = common_waits();
  double sum = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    sum += least_wait(i);
  }
  return steps == 0 ? 0 : sum / static_cast<double>(steps);
}

double Ranks::waiting() const {
  const std::size_t steps = common_waits();
  double sum = 0;
  for (const RankSteps& rank : ranks_) {
    sum += std::accumulate(rank.waits.end() - static_cast<std::ptrdiff_t>(steps), rank.waits.end(), 0.0);
  }
  return steps == 0 ? 0 : sum / static_cast<double>(steps * ranks_.size()) - exchange();
}

std::pair<int, int> Ranks::most_crowded() const {
  std::map<double, std::pair<int, int>> hosts;
  for (const RankSteps& rank : ranks_) {
    auto& [here, cores] = hosts[rank.host];
    ++here;
    cores = std::max(cores, static_cast<int>(rank.cores));
  }
  return std::ranges::max_element(
             hosts, std::ranges::less(),
             [](const auto& host) { return static_cast<double>(host.second.first) / std::max(1, host.second.second); })
      ->second;
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

}  // namespace tandem::inline v0::telemetry
