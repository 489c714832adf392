#include "step/measure.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <tandem/core/thread_pool.h>

#include "step/clock.h"

namespace bench {

double seconds_of(Step& step, std::int64_t steps, bool one_thread) {
  step.run(1);
  const double start = now(one_thread);
  step.run(steps);
  return now(one_thread) - start;
}

std::int64_t steps_for(Step& step, double block_seconds, bool one_thread) {
  std::int64_t steps = 1;
  for (;;) {
    const double seconds = seconds_of(step, steps, one_thread);
    if (seconds >= block_seconds) {
      return steps;
    }
    if (seconds >= block_seconds / 10) {
      return static_cast<std::int64_t>(std::ceil(static_cast<double>(steps) * block_seconds / seconds));
    }
    steps *= 4;
  }
}

Pairs time_pairs(Step& step, Step& floor, std::int64_t blocks, double block_seconds) {
  struct Pair {
    double step, floor, waited;
  };
  std::vector<Pair> pairs;
  Pairs result;
  std::minstd_rand order(20);  // random order, because disturbances may be periodic
  const bool one_thread = tandem::num_threads() == 1;
  result.steps_per_block = steps_for(floor, block_seconds, one_thread);
  const auto undisturbed = [](const Pair& pair) { return pair.waited < 0.01 * (pair.step + pair.floor); };
  while (std::ranges::count_if(pairs, undisturbed) < blocks && std::ssize(pairs) < 4 * blocks) {
    const double waited = waited_seconds();
    Pair pair{};
    const bool floor_first = order() % 2 == 1;
    if (floor_first) {
      pair.floor = seconds_of(floor, result.steps_per_block, one_thread);
    }
    pair.step = seconds_of(step, result.steps_per_block, one_thread);
    if (!floor_first) {
      pair.floor = seconds_of(floor, result.steps_per_block, one_thread);
    }
    pair.waited = waited_seconds() - waited;
    pairs.push_back(pair);
  }
  result.left_out = std::ssize(pairs) - blocks;
  std::ranges::sort(pairs, {}, [](const Pair& pair) { return pair.waited / (pair.step + pair.floor); });
  pairs.resize(static_cast<std::size_t>(blocks));
  result.disturbed = blocks - std::ranges::count_if(pairs, undisturbed);
  const double us = 1e6 / static_cast<double>(result.steps_per_block);
  for (const Pair& pair : pairs) {
    result.step_us.push_back(pair.step * us);
    result.floor_us.push_back(pair.floor * us);
    result.ratios.push_back(pair.step / pair.floor);
  }
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::pair<double, double> median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // The median lies below the k-th smallest value when fewer than k of n draws fall below it, as when a fair coin is
  // tossed n times.
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
  const std::size_t rank = k > 0 ? k - 1 : 0;  // counts from 0
  return {values[rank], values[values.size() - 1 - rank]};
}

}  // namespace bench
