#include <tandem/parallel/diagnose.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

// What a rank's steps took.
struct Steps {
  double count = 0;
  std::array<double, kPhases> us{};  // per step
  double step_us = 0;

  double of(Phase phase) const { return us[static_cast<std::size_t>(phase)]; }
  double rest() const { return std::max(0.0, step_us - std::accumulate(us.begin(), us.end(), 0.0)); }
  double busy() const { return step_us - of(Phase::reduce); }  // a rank that waits for others waits there
};

constexpr std::size_t kValues = kPhases + 2;

Steps steps_of(const StepTimes& times) {
  Steps steps{.count = static_cast<double>(times.steps())};
  const double per_step = 1e6 / std::max(1.0, steps.count);
  for (std::size_t i = 0; i < kPhases; ++i) {
    steps.us[i] = per_step * times.seconds(static_cast<Phase>(i));
  }
  steps.step_us = per_step * times.elapsed();
  return steps;
}

std::vector<double> to_values(const Steps& steps) {
  std::vector<double> values{steps.count, steps.step_us};
  values.insert(values.end(), steps.us.begin(), steps.us.end());
  return values;
}

Steps from_values(const double* values) {
  Steps steps{.count = values[0], .step_us = values[1]};
  std::copy_n(values + 2, kPhases, steps.us.begin());
  return steps;
}

Steps mean_of(const std::vector<Steps>& ranks) {
  std::vector<double> sum(kValues, 0);
  for (const Steps& rank : ranks) {
    const std::vector<double> values = to_values(rank);
    std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus());
  }
  for (double& value : sum) {
    value /= static_cast<double>(ranks.size());
  }
  return from_values(sum.data());
}

// Time that one device would not need, and the way to less of it.
struct Cost {
  double us;
  std::string text;
};

std::string percent(double us, const Steps& all) { return fmt::format("{:.0f} %", 100 * us / all.step_us); }

std::vector<Cost> costs_of(const std::vector<Steps>& ranks, const Steps& mean) {
  std::vector<Cost> costs;
  const double input = mean.of(Phase::input);
  costs.push_back(
      {input, fmt::format("{} of a step waits for the DataLoader: let more threads load ahead (num_workers, "
                          "prefetch_factor), or prepare the data set beforehand",
                          percent(input, mean))});
  const double handling = mean.of(Phase::scatter) + mean.of(Phase::replicate) + mean.of(Phase::gather);
  if (handling > 0) {
    const double us = handling + mean.of(Phase::reduce);
    costs.push_back({us, fmt::format("{} of a step is DataParallel's copying to and from its first device, which grows "
                                     "with the number of devices: DistributedDataParallel (spawn()) has none of it but "
                                     "the reduction; larger batches make it a smaller part",
                                     percent(us, mean))});
  } else {
    const auto by_busy = [](const Steps& a, const Steps& b) { return a.busy() < b.busy(); };
    const auto slowest = std::ranges::max_element(ranks, by_busy);
    const double others = std::ranges::min_element(ranks, by_busy)->busy();
    const double exposed = slowest->of(Phase::reduce);
    costs.push_back({slowest->busy() - others,
                     fmt::format("all wait for rank {}, which is busy for {:.0f} us of a step and the quickest for "
                                 "{:.0f}: it has more rows or longer ones, a slower or shared device, or work that is "
                                 "done on one rank alone (logging, evaluation, checkpoints)",
                                 slowest - ranks.begin(), slowest->busy(), others)});
    costs.push_back(
        {exposed, fmt::format("{} of a step waits for the reduction of gradients, beyond what the backward "
                              "pass hides: larger batches per rank, no_sync() for all but every n-th batch, "
                              "or bf16_compress_hook() make it less, and so does a faster link",
                              percent(exposed, mean))});
  }
  const double update = mean.of(Phase::optimizer);
  costs.push_back({update, fmt::format("{} of a step is the optimiser's update, which each rank does whole: larger "
                                       "batches have fewer updates",
                                       percent(update, mean))});
  std::ranges::sort(costs, std::ranges::greater(), &Cost::us);
  return costs;
}

std::string text_of(const std::vector<Steps>& ranks) {
  const Steps mean = mean_of(ranks);
  if (mean.count == 0) {
    return "no step to diagnose: no optimiser has stepped since the StepTimes was made\n";
  }
  std::string text = fmt::format("{:.0f} steps", mean.count);
  if (ranks.size() > 1) {
    text += fmt::format(" on each of {} ranks", ranks.size());
  }
  text += fmt::format(", {:.0f} us each:\n", mean.step_us);
  const auto line = [&](const char* name, double us) {
    if (us > 0) {
      text += fmt::format("  {:9} {:9.0f} us {:4.0f} %\n", name, us, 100 * us / mean.step_us);
    }
  };
  for (std::size_t i = 0; i < kPhases; ++i) {
    line(to_string(static_cast<Phase>(i)), mean.us[i]);
  }
  line("the rest", mean.rest());
  constexpr double kWorthwhile = 0.05;
  const Cost first = costs_of(ranks, mean).front();
  if (first.us < kWorthwhile * mean.step_us) {
    return text + "Nearly all of it computes: a step gets faster by faster devices, more of them, or more threads.\n";
  }
  return text + fmt::format("The largest part that one could save: {}.\n", first.text);
}

}  // namespace

std::string diagnose(const StepTimes& times) { return text_of({steps_of(times)}); }

std::string diagnose(const StepTimes& times, ProcessGroup& group) {
  const auto size = static_cast<std::int64_t>(kValues);
  const Device cpu(DeviceType::cpu, 0);
  const Tensor own = from_data(to_values(steps_of(times)), {size}, {.device = cpu});
  const Tensor all = zeros({group.size() * size}, {.dtype = DType::f64, .device = cpu});
  group.all_gather_into_tensor(all, own);
  const std::vector<double> values = all.to_vector<double>();
  std::vector<Steps> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    ranks.push_back(from_values(values.data() + static_cast<std::size_t>(rank) * kValues));
  }
  return text_of(ranks);
}

}  // namespace tandem::inline v0::parallel
