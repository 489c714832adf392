#include "scaling/measure.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>

#include <tandem/core/thread_pool.h>

#include "step/clock.h"
#include "step/measure.h"

namespace bench::scaling {

using tandem::kPhases;
using tandem::Phase;
using tandem::StepTimes;

const char* name_of_part(std::size_t part) { return part < kPhases ? to_string(static_cast<Phase>(part)) : "other"; }

namespace {

/// One way's times in one round.
struct Sample {
  double us;  // per step
  std::array<double, kParts> part_us;
};

struct Round {
  std::vector<Sample> samples;  // by way
  double waited = 0;            // largest share of a block spent waiting for a core
};

Sample sample(TrainingStep& step, std::int64_t steps, double& waited) {
  const double before = waited_seconds();
  const double seconds = seconds_of(step, steps, false);
  waited = std::max(waited, (waited_seconds() - before) / seconds);
  Sample sample{.us = 1e6 * seconds / static_cast<double>(steps), .part_us = {}};
  // The phases are timed in a shorter block of their own, because counting them takes time too.
  const std::int64_t counted = std::max<std::int64_t>(1, steps / 4);
  const double us = 1e6 / static_cast<double>(counted);
  const StepTimes times;
  const double start = now(false);
  step.run(counted);
  double rest = now(false) - start;
  for (std::size_t i = 0; i < kPhases; ++i) {
    const double time = times.seconds(static_cast<Phase>(i));
    rest -= time;
    sample.part_us[i] = time * us;
  }
  sample.part_us.back() = rest * us;
  return sample;
}

// The `value` of each round.
template <class Value>
std::vector<double> of_rounds(const std::vector<Round>& rounds, const Value& value) {
  std::vector<double> values;
  std::ranges::transform(rounds, std::back_inserter(values), value);
  return values;
}

}  // namespace

Measured measure(const Spec& spec, const std::vector<Way>& ways, tandem::DeviceType type, std::int64_t rounds,
                 double block_seconds, const std::function<void(std::int64_t)>& progress) {
  Measured result;
  std::vector<std::unique_ptr<TrainingStep>> steps;
  for (const Way& way : ways) {
    tandem::set_num_threads(way.threads);
    steps.push_back(make_step(spec, way, type));
    result.ways.push_back({.way = way, .steps_per_block = steps_for(*steps.back(), block_seconds, false)});
  }
  std::vector<std::size_t> order(ways.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand random(20);
  std::vector<Round> all;
  const auto undisturbed = [](const Round& round) { return round.waited < 0.01; };
  while (std::ranges::count_if(all, undisturbed) < rounds && std::ssize(all) < 4 * rounds) {
    progress(std::ssize(all));
    std::ranges::shuffle(order, random);
    Round& round = all.emplace_back();
    round.samples.resize(ways.size());
    for (const std::size_t i : order) {
      tandem::set_num_threads(ways[i].threads);
      round.samples[i] = sample(*steps[i], result.ways[i].steps_per_block, round.waited);
    }
  }
  result.left_out = std::ssize(all) - rounds;
  std::ranges::stable_sort(all, {}, &Round::waited);
  all.resize(static_cast<std::size_t>(rounds));
  result.disturbed = rounds - std::ranges::count_if(all, undisturbed);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    result.ways[i].us = of_rounds(all, [i](const Round& round) { return round.samples[i].us; });
    for (std::size_t part = 0; part < kParts; ++part) {
      result.ways[i].part_us[part] =
          median(of_rounds(all, [&](const Round& round) { return round.samples[i].part_us[part]; }));
    }
  }
  return result;
}

}  // namespace bench::scaling
