#include <tandem/telemetry/rank_steps.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/cores.h>
#include <tandem/core/host_name.h>
#include <tandem/core/peak_place.h>
#include <tandem/core/thread_pool.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr std::size_t kMostWaits = 64;
constexpr std::size_t kMostPlace = 64;

// A number that is equal for ranks on one machine and almost always differs between machines.
double number_of_this_host() {
  return static_cast<double>(std::hash<std::string>{}(core::host_name()) >>
                             11);  // 53 bits, which a double holds exactly
}

// Cores available to all ranks of this host. If ranks are processes, this process may be bound to cores that the other
// ranks do not use, so count all cores of the machine, unless a control group allows fewer.
int cores_of_all_ranks() {
  const int here = core::available_cores();
  const bool has_quota = here < static_cast<int>(core::cores_of_affinity_mask().size());
  return core::thread_state().rank != nullptr || has_quota ? here
                                                           : static_cast<int>(std::thread::hardware_concurrency());
}

// Takes numbers one after another.
class Reader {
 public:
  explicit Reader(std::span<const double> values) : values_(values) {}
  std::span<const double> take(std::size_t count) {
    const std::span<const double> taken = values_.first(count);
    values_ = values_.subspan(count);
    return taken;
  }
  double take() { return take(1).front(); }

 private:
  std::span<const double> values_;
};

// The single numbers of a RankSteps.
template <class Steps>
auto numbers_of(Steps& steps) {
  return std::array{&steps.count,      &steps.step_us,    &steps.host,        &steps.cores,
                    &steps.threads,    &steps.is_process, &steps.bound_to[0], &steps.bound_to[1],
                    &steps.longest_us, &steps.latency_us, &steps.is_gpu_time, &steps.peak_bytes};
}

// A bit for each core of a rank's process, in numbers that a double holds exactly.
std::array<double, 2> own_cores() {
  std::array<double, 2> bits{};
  for (const int core : core::cores_of_affinity_mask()) {
    if (static_cast<std::size_t>(core) < kKnownCores) {
      bits[static_cast<std::size_t>(core / 48)] += std::exp2(core % 48);
    }
  }
  return bits;
}

// A pipeline over devices of one process counts its whole step as Phase::pipeline, and knows which part of that its
// stages were idle.
void tell_apart_pipeline(RankSteps& steps) {
  if (steps.of(Fact::stages) > 0 && steps.of(Fact::idle) > 0) {
    double& pipeline = steps.us[static_cast<std::size_t>(Phase::pipeline)];
    const double busy = pipeline * (1 - steps.of(Fact::idle));
    steps.us[static_cast<std::size_t>(Phase::backward)] += busy;
    pipeline -= busy;
    for (double& wait : steps.waits) {
      wait *= steps.of(Fact::idle);
    }
  }
}

}  // namespace

RankSteps RankSteps::of(const StepTimes& times) {
  const StepSums sums = times.whole_steps();
  RankSteps steps{.count = static_cast<double>(sums.count),
                  .host = number_of_this_host(),
                  .cores = static_cast<double>(cores_of_all_ranks()),
                  .threads = static_cast<double>(num_threads()),
                  .is_process = core::thread_state().rank != nullptr ? 0.0 : 1.0,
                  .bound_to = own_cores(),
                  .is_gpu_time = sums.is_gpu_time ? 1.0 : 0.0,
                  .facts = sums.facts};
  const core::Peak peak = core::peak_of(static_cast<int>(steps.of(Fact::gpu)) - 1);
  steps.peak_bytes = static_cast<double>(peak.bytes);
  steps.peak_place =
      peak.place.size() <= kMostPlace ? peak.place : "..." + peak.place.substr(peak.place.size() - kMostPlace + 3);
  const double per_step = 1e6 / std::max(1.0, steps.count);
  steps.step_us = per_step * sums.elapsed;
  steps.longest_us = 1e6 * sums.longest;
  std::ranges::transform(sums.phases, steps.us.begin(), [&](double seconds) { return per_step * seconds; });
  for (const double seconds : sums.waits) {
    steps.waits.push_back(1e6 * seconds);
  }
  for (std::size_t i = 0; i < kEfforts; ++i) {
    const EffortSum& sum = sums.efforts[i];
    const double count = std::max(1.0, steps.count);
    steps.efforts[i] = {.count = sum.count / count, .seconds = per_step * sum.seconds, .bytes = sum.bytes / count};
  }
  steps.count = sums.elapsed > 0 ? steps.count : 0;  // within the first update there is no step yet
  tell_apart_pipeline(steps);
  return steps;
}

RankSteps RankSteps::from_values(std::span<const double> values) {
  RankSteps steps;
  Reader reader(values);
  for (double* number : numbers_of(steps)) {
    *number = reader.take();
  }
  std::ranges::copy(reader.take(kPhases), steps.us.begin());
  std::ranges::copy(reader.take(kFacts), steps.facts.begin());
  for (EffortSum& sum : steps.efforts) {
    sum = {.count = reader.take(), .seconds = reader.take(), .bytes = reader.take()};
  }
  for (const double letter : reader.take(kMostPlace)) {
    steps.peak_place += static_cast<char>(letter);
  }
  steps.peak_place.resize(steps.peak_place.find_last_not_of('\0') + 1);
  const auto count = static_cast<std::size_t>(reader.take());
  const std::span<const double> waits = reader.take(count);
  steps.waits.assign(waits.begin(), waits.end());
  return steps;
}

std::vector<double> RankSteps::to_values() const {
  std::vector<double> values;
  for (const double* number : numbers_of(*this)) {
    values.push_back(*number);
  }
  values.insert(values.end(), us.begin(), us.end());
  values.insert(values.end(), facts.begin(), facts.end());
  for (const EffortSum& sum : efforts) {
    values.insert(values.end(), {sum.count, sum.seconds, sum.bytes});
  }
  values.insert(values.end(), peak_place.begin(), peak_place.end());
  values.resize(values.size() + kMostPlace - peak_place.size());
  values.push_back(static_cast<double>(waits.size()));
  const std::size_t size = values.size() + kMostWaits;
  values.insert(values.end(), waits.begin(), waits.end());
  values.resize(size);
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
    for (std::size_t i = 0; i < kEfforts; ++i) {
      mean_.efforts[i].count += rank.efforts[i].count / count;
      mean_.efforts[i].seconds += rank.efforts[i].seconds / count;
      mean_.efforts[i].bytes += rank.efforts[i].bytes / count;
    }
  }
  mean_.facts = ranks_.front().facts;
  mean_.peak_place = ranks_.front().peak_place;
  mean_.peak_bytes = ranks_.front().peak_bytes;
}

std::size_t Ranks::common_waits() const {
  return least([](const RankSteps& rank) { return rank.waits.size(); });
}

double Ranks::least_wait(std::size_t steps_ago) const {
  return least([&](const RankSteps& rank) { return rank.waits[rank.waits.size() - 1 - steps_ago]; });
}

double Ranks::wire() const {
  return is_launched() ? 0 : least([](const RankSteps& rank) { return rank.of(Effort::exchange).seconds; });
}

double Ranks::latency() const { return is_launched() ? 0 : least(&RankSteps::latency_us); }

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

Ranks::CoreUse Ranks::idle_cores() const {
  struct Machine {
    int threads = 0;         // of processes ...
    int shared_threads = 0;  // ... and of one process whose threads are ranks
    int ranks_in_it = 0;
    int cores = 0;
    std::array<std::uint64_t, 2> bound_to{};
  };
  std::map<double, Machine> machines;
  for (const RankSteps& rank : ranks_) {
    Machine& machine = machines[rank.host];
    if (rank.is_process == 1) {
      machine.threads += static_cast<int>(rank.threads);
    } else {
      machine.shared_threads = std::max(machine.shared_threads, static_cast<int>(rank.threads));
      ++machine.ranks_in_it;
    }
    machine.cores = std::max(machine.cores, static_cast<int>(rank.cores));
    for (std::size_t i = 0; i < rank.bound_to.size(); ++i) {
      machine.bound_to[i] |= static_cast<std::uint64_t>(rank.bound_to[i]);
    }
  }
  CoreUse idlest;
  for (const auto& [host, machine] : machines) {
    const int bound = std::popcount(machine.bound_to[0]) + std::popcount(machine.bound_to[1]);
    const int threads = machine.threads + std::max(machine.shared_threads, machine.ranks_in_it);
    CoreUse use{.used = std::min(threads, machine.cores), .all = machine.cores};
    if (bound > 0 && bound < use.used && machine.cores <= static_cast<int>(kKnownCores)) {
      use.used = bound;
      use.is_bound = true;
    }
    if (idlest.all == 0 || use.used * idlest.all < idlest.used * use.all) {
      idlest = use;
    }
  }
  return idlest;
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
