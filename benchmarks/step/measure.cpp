#include "step/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(Step& step, std::int64_t steps) {
  const auto start = Clock::now();
  step.run(steps);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// How long this process's threads have waited for a core so far; 0 where the system does not say.
double waited_seconds() {
  double sum = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0;
    double waited = 0;
    if (file >> ran >> waited) {
      sum += waited * 1e-9;
    }
  }
  return sum;
}

std::int64_t steps_for(Step& floor, double block_seconds) {
  std::int64_t steps = 1;
  for (;;) {
    const double seconds = seconds_of(floor, steps);
    if (seconds >= block_seconds) {
      return steps;
    }
    if (seconds >= block_seconds / 10) {
      return static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * block_seconds / seconds));
    }
    steps *= 4;
  }
}

}  // namespace

Pairs time_pairs(Step& step, Step& floor, std::int64_t blocks, double block_seconds) {
  Pairs clean;
  clean.steps_per_block = steps_for(floor, block_seconds);
  step.run(clean.steps_per_block);
  Pairs all = clean;
  const auto add = [&](Pairs& pairs, double step_seconds, double floor_seconds) {
    const auto steps = static_cast<double>(pairs.steps_per_block);
    pairs.step_us.push_back(step_seconds * 1e6 / steps);
    pairs.floor_us.push_back(floor_seconds * 1e6 / steps);
    pairs.ratios.push_back(step_seconds / floor_seconds);
  };
  for (std::int64_t pair = 0; pair < 4 * blocks && std::ssize(clean.ratios) < blocks; ++pair) {
    const double waited = waited_seconds();
    const bool floor_first = pair % 2 == 1;
    double floor_seconds = floor_first ? seconds_of(floor, clean.steps_per_block) : 0;
    const double step_seconds = seconds_of(step, clean.steps_per_block);
    if (!floor_first) {
      floor_seconds = seconds_of(floor, clean.steps_per_block);
    }
    add(all, step_seconds, floor_seconds);
    if (waited_seconds() - waited < 0.01 * (step_seconds + floor_seconds)) {
      add(clean, step_seconds, floor_seconds);
    } else {
      ++clean.disturbed;
    }
  }
  if (std::ssize(clean.ratios) >= blocks) {
    return clean;
  }
  all.disturbed = clean.disturbed;
  all.clean = false;
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::pair<double, double> median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // The median lies below the k-th smallest value when fewer than k of n draws fall below it: a fair coin, n times.
  const auto n = static_cast<double>(values.size());
  double below = 0;
  std::size_t k = 0;
  for (;; ++k) {
    const auto i = static_cast<double>(k);
    below += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
    if (below > 0.025 || 2 * (k + 1) >= values.size()) {
      break;
    }
  }
  const std::size_t rank = k > 0 ? k - 1 : 0;  // from 0
  return {values[rank], values[values.size() - 1 - rank]};
}

}  // namespace bench
