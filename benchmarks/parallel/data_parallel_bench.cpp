// Measures the cost of DataParallel, as a whole and in pieces, beside the floor of work that two cores cannot avoid.
//
// Step/...: blocks of steps alternate with blocks of the alternatives they are compared with, so that ratios belong to
// one run. Counters are medians, in microseconds per step:
//   us, plain_us   the step, and the step on one device with one thread
//   extra_us       us - plain_us: the cost of two devices, each with as many rows as the one
//   floor_us       two hand-overs, moving the parameters to the other core and the gradients back
//   extra_per_floor  extra_us / floor_us
//   speedup        images per second relative to one device with one thread
//   of_threads     images per second relative to one device with two threads inside its ops
//   eager_us, of_eager  the same step, not captured, and its time relative to the captured one
//   disturbed      share of the blocks used in which our threads waited for a core: should be 0
// Evaluation/...: forward passes with unchanged parameters. bytes_copied counts the bytes that each sends to replicas.
// Piece/...: the parts of a step, alone.
// Floor/...: an empty task for another thread and back; adding numbers that another core has just written to local
// ones; adding numbers to those that another core has just read.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <tandem/core/thread_pool.h>

#include "parallel/nets.h"
#include "scaling/ways.h"
#include "step/clock.h"
#include "step/measure.h"

namespace {

using namespace bench::data_parallel;
using bench::scaling::make_step;
using bench::scaling::Parallel;
using bench::scaling::Way;
using tandem::DeviceType;
using tandem::set_num_threads;

constexpr double kBlock = 5e-3;

/// Several ways of training, timed in turn.
class InTurn {
 public:
  InTurn(const bench::Spec& spec, std::vector<Way> ways) : ways_(std::move(ways)) {
    for (const Way& way : ways_) {
      set_num_threads(way.threads);
      steps_.push_back(make_step(spec, way, DeviceType::cpu));
      blocks_.push_back(bench::steps_for(*steps_.back(), kBlock, false));
    }
  }

  /// Runs a block of each way. Returns the seconds of the first way's block.
  double run() {
    Round& round = rounds_.emplace_back();
    round.us.resize(ways_.size());
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      const std::size_t at = (i + rounds_.size()) % ways_.size();
      set_num_threads(ways_[at].threads);
      const double before = bench::waited_seconds();
      const double seconds = bench::seconds_of(*steps_[at], blocks_[at], false);
      round.waited = std::max(round.waited, (bench::waited_seconds() - before) / seconds);
      round.us[at] = 1e6 * seconds / static_cast<double>(blocks_[at]);
    }
    return 1e-6 * round.us[0] * static_cast<double>(blocks_[0]);
  }

  /// Keeps the half of all rounds in which our threads waited the least for a core. Returns the share of these that
  /// other programs disturbed nevertheless, by more than 1 % of a block.
  double keep_best() {
    std::ranges::stable_sort(rounds_, {}, &Round::waited);
    rounds_.resize((rounds_.size() + 1) / 2);
    const auto disturbed = std::ranges::count_if(rounds_, [](const Round& round) { return round.waited >= 0.01; });
    return static_cast<double>(disturbed) / static_cast<double>(rounds_.size());
  }

  /// The median over rounds of `of(us of each way)`.
  template <class Of>
  double median(const Of& of) const {
    std::vector<double> values;
    std::ranges::transform(rounds_, std::back_inserter(values), [&](const Round& round) { return of(round.us); });
    return bench::median(std::move(values));
  }
  double us(std::size_t way) const {
    return median([way](const std::vector<double>& us) { return us[way]; });
  }
  /// Images per second of the first way, relative to another way.
  double rate(std::size_t other) const {
    const double images = static_cast<double>(ways_[0].batch) / static_cast<double>(ways_[other].batch);
    return images * median([other](const std::vector<double>& us) { return us[other] / us[0]; });
  }

 private:
  struct Round {
    std::vector<double> us;  // per step, by way
    double waited = 0;       // largest share of a block spent waiting for a core
  };

  std::vector<Way> ways_;
  std::vector<std::unique_ptr<bench::scaling::TrainingStep>> steps_;
  std::vector<std::int64_t> blocks_;
  std::vector<Round> rounds_;
};

void extra(benchmark::State& state, Parallel parallel) {
  const bench::Spec spec = small_net();
  const std::int64_t part = spec.batch / 2;
  InTurn steps(spec, {{.parallel = parallel, .devices = 2, .threads = 2, .batch = spec.batch}, {.batch = part}});
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(steps.run());
  }
  state.counters["disturbed"] = steps.keep_best();
  const double more = steps.median([](const std::vector<double>& us) { return us[0] - us[1]; });
  const double floor = floor_us(parameters_of(spec));
  state.counters["us"] = steps.us(0);
  state.counters["plain_us"] = steps.us(1);
  state.counters["extra_us"] = more;
  state.counters["floor_us"] = floor;
  state.counters["extra_per_floor"] = more / floor;
}
BENCHMARK_CAPTURE(extra, dp, Parallel::dp)->Name("Step/128-256-128-10/dp batch 16, plain batch 8")->UseManualTime();
BENCHMARK_CAPTURE(extra, dp_loss, Parallel::dp_loss)
    ->Name("Step/128-256-128-10/dp_loss batch 16, plain batch 8")
    ->UseManualTime();

void speedup(benchmark::State& state, Parallel parallel) {
  const bench::Spec spec = large_net();
  InTurn steps(spec, {{.parallel = parallel, .devices = 2, .threads = 2, .batch = spec.batch},
                      {.batch = spec.batch},
                      {.threads = 2, .batch = spec.batch}});
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(steps.run());
  }
  state.counters["disturbed"] = steps.keep_best();
  state.counters["us"] = steps.us(0);
  state.counters["plain_us"] = steps.us(1);
  state.counters["threads_us"] = steps.us(2);
  state.counters["speedup"] = steps.rate(1);
  state.counters["of_threads"] = steps.rate(2);
}
BENCHMARK_CAPTURE(speedup, dp, Parallel::dp)->Name("Step/784-512-512-10,b256,adam/dp")->UseManualTime();
BENCHMARK_CAPTURE(speedup, dp_loss, Parallel::dp_loss)->Name("Step/784-512-512-10,b256,adam/dp_loss")->UseManualTime();

void captured(benchmark::State& state, const bench::Spec& spec, Parallel parallel) {
  const Way way{.parallel = parallel, .devices = 2, .threads = 2, .batch = spec.batch, .is_captured = true};
  Way eager = way;
  eager.is_captured = false;
  InTurn steps(spec, {way, eager, {.batch = spec.batch, .is_captured = true}});
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(steps.run());
  }
  state.counters["disturbed"] = steps.keep_best();
  state.counters["us"] = steps.us(0);
  state.counters["eager_us"] = steps.us(1);
  state.counters["plain_us"] = steps.us(2);
  state.counters["of_eager"] = steps.rate(1);
  state.counters["speedup"] = steps.rate(2);
}
BENCHMARK_CAPTURE(captured, small_dp, small_net(), Parallel::dp)
    ->Name("Step/128-256-128-10,b16/captured dp")
    ->UseManualTime();
BENCHMARK_CAPTURE(captured, small_dp_loss, small_net(), Parallel::dp_loss)
    ->Name("Step/128-256-128-10,b16/captured dp_loss")
    ->UseManualTime();
BENCHMARK_CAPTURE(captured, large_dp, large_net(), Parallel::dp)
    ->Name("Step/784-512-512-10,b256,adam/captured dp")
    ->UseManualTime();
BENCHMARK_CAPTURE(captured, large_dp_loss, large_net(), Parallel::dp_loss)
    ->Name("Step/784-512-512-10,b256,adam/captured dp_loss")
    ->UseManualTime();

// Speed without equal numbers would be a bug, so compare gradients and losses first.
bool computes_the_same() {
  for (const bench::Spec& spec : {small_net(), large_net()}) {
    for (const auto& [parallel, is_captured] : {std::pair(Parallel::dp, false), std::pair(Parallel::dp_loss, false),
                                                std::pair(Parallel::dp, true), std::pair(Parallel::dp_loss, true)}) {
      set_num_threads(2);
      const Way way{.parallel = parallel, .devices = 2, .threads = 2, .batch = spec.batch, .is_captured = is_captured};
      const auto dp = make_step(spec, way, DeviceType::cpu);
      const auto plain = make_step(spec, {.batch = spec.batch}, DeviceType::cpu);
      const double found = bench::scaling::difference(*dp, *plain);
      if (!(found <= 1e-6)) {
        fmt::print(stderr, "{}{}, batch {}: gradients differ from one device's by {:.3g}, expected at most 1e-6\n",
                   is_captured ? "captured " : "", bench::scaling::name_of(parallel), spec.batch, found);
        return false;
      }
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv) || !computes_the_same()) {
    return 1;
  }
  register_floors();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
