// What DataParallel costs, as a whole and in pieces, beside what two cores cannot do without.
//
// Step/...: blocks of steps, in turn with blocks of what they are held against, so that ratios are of one run; the
// counters are medians, in microseconds per step:
//   us, plain_us   the step, and one device's with one thread
//   extra_us       us - plain_us: the cost of two devices, each with as many rows as the one
//   floor_us       two hand-overs (forward, backward), the parameters' way to the other core and the gradients' way
//   back;
//                  extra_per_floor: how many times as much it is
//   speedup        images per second, in relation to one device with one thread
//   of_threads     the same, in relation to one device with two threads inside its ops
//   disturbed      the share of the blocks that count in which our threads waited for a core: should be 0
// Evaluation/...: forward passes with unchanged parameters; bytes_copied is what each sends to replicas.
// Piece/...: the parts of a step, alone. Floor/...: an empty task for another thread and back; numbers that another
// core has written last, added to those here, and numbers added to those that another core has read last.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <tandem/core/spin.h>
#include <tandem/core/thread_pool.h>
#include <tandem/tandem.h>

#include "scaling/ways.h"
#include "step/clock.h"
#include "step/measure.h"
#include "step/model.h"

namespace {

using namespace tandem;
using bench::scaling::make_step;
using bench::scaling::Parallel;
using bench::scaling::Way;

constexpr double kBlock = 5e-3;

const std::vector<Device>& devices() {
  static const std::vector<Device> two{"cpu:0", "cpu:1"};
  return two;
}

bench::Spec small_net() { return {.sizes = {128, 256, 128, 10}, .batch = 16, .lr = 1e-9}; }
bench::Spec large_net() { return {.sizes = {784, 512, 512, 10}, .batch = 256, .rule = bench::Rule::adam, .lr = 1e-9}; }

std::int64_t parameters_of(const bench::Spec& spec) {
  std::int64_t count = 0;
  for (std::size_t layer = 0; layer + 1 < spec.sizes.size(); ++layer) {
    count += (spec.sizes[layer] + 1) * spec.sizes[layer + 1];
  }
  return count;
}

// ---- floors ----

/// Microseconds that one of many calls takes; the median.
double us_of(const std::function<void()>& call, int times) {
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    const double start = bench::now(false);
    call();
    us.push_back(1e6 * (bench::now(false) - start));
  }
  return bench::median(std::move(us));
}

/// body() on the pool's other thread, and back. The caller stands still meanwhile: it would take over a lane that the
/// other has not begun.
template <class Body>
void on_other_thread(const Body& body) {
  std::atomic<bool> done{false};
  core::ThreadPool::instance().for_each_lane(2, [&](std::int64_t lane) {
    if (lane == 1) {
      body();
      done.store(true, std::memory_order_release);
    }
    while (!done.load(std::memory_order_acquire)) {
      core::spin_pause();
    }
  });
}

void hand_over() {
  on_other_thread([] {});
}

/// Numbers that another core writes and this one adds up, as gradients are.
class Transfer {
 public:
  explicit Transfer(std::int64_t count)
      : there_(static_cast<std::size_t>(count), 1.0F), here_(static_cast<std::size_t>(count)) {}

  void write(bool on_other_core) {
    const auto write = [this] {
      std::ranges::for_each(there_, [](float& value) { value += 1; });
      benchmark::ClobberMemory();
    };
    on_other_core ? on_other_thread(write) : write();
  }
  void read_sum(bool on_other_core) {
    const auto read = [this] { benchmark::DoNotOptimize(std::accumulate(here_.begin(), here_.end(), 0.0F)); };
    on_other_core ? on_other_thread(read) : read();
  }
  void add() {
    for (std::size_t i = 0; i < here_.size(); ++i) {
      here_[i] += there_[i];
    }
    benchmark::ClobberMemory();
  }
  double us(bool on_other_core) {
    std::vector<double> us;
    for (int i = 0; i < 201; ++i) {
      write(on_other_core);
      us.push_back(us_of([this] { add(); }, 1));
    }
    return bench::median(std::move(us));
  }

 private:
  std::vector<float> there_;
  std::vector<float> here_;
};

double floor_us(std::int64_t parameters) {
  set_num_threads(2);
  return 2 * us_of(hand_over, 2001) + 2 * Transfer(parameters).us(true);
}

void hand_over_floor(benchmark::State& state) {
  set_num_threads(2);
  for ([[maybe_unused]] auto _ : state) {
    hand_over();
  }
}
BENCHMARK(hand_over_floor)->Name("Floor/hand over")->UseRealTime();

void add_floor(benchmark::State& state, const bench::Spec& spec, void (Transfer::*before)(bool), bool on_other_core) {
  set_num_threads(2);
  const std::int64_t count = parameters_of(spec);
  Transfer transfer(count);
  for ([[maybe_unused]] auto _ : state) {
    (transfer.*before)(on_other_core);
    state.SetIterationTime(1e-6 * us_of([&] { transfer.add(); }, 1));
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}

void register_floors() {
  for (const auto& [model, spec] :
       {std::pair("128-256-128-10", small_net()), std::pair("784-512-512-10", large_net())}) {
    for (const bool other : {true, false}) {
      const auto add = [&, &of = spec](const char* what, void (Transfer::*before)(bool)) {
        const std::string name = fmt::format("Floor/{}/{} {} core", model, what, other ? "the other" : "the same");
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          add_floor(state, of, before, other);
        })->UseManualTime();
      };
      add("add gradients, written by", &Transfer::write);
      add("update parameters, read by", &Transfer::read_sum);
    }
  }
}

// ---- steps ----

/// Ways of training, timed in turn.
class InTurn {
 public:
  InTurn(const bench::Spec& spec, std::vector<Way> ways) : ways_(std::move(ways)) {
    for (const Way& way : ways_) {
      set_num_threads(way.threads);
      steps_.push_back(make_step(spec, way, DeviceType::cpu));
      blocks_.push_back(bench::steps_for(*steps_.back(), kBlock, false));
    }
  }

  /// A block of each; seconds of the first one's.
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

  /// Keeps the half of all rounds in which our threads waited the least for a core; how many of these were disturbed by
  /// other programs all the same, by more than 1 % of a block: a share.
  double keep_best() {
    std::ranges::stable_sort(rounds_, {}, &Round::waited);
    rounds_.resize((rounds_.size() + 1) / 2);
    const auto disturbed = std::ranges::count_if(rounds_, [](const Round& round) { return round.waited >= 0.01; });
    return static_cast<double>(disturbed) / static_cast<double>(rounds_.size());
  }

  /// The median of what `of(us of each way)` is in each round.
  template <class Of>
  double median(const Of& of) const {
    std::vector<double> values;
    std::ranges::transform(rounds_, std::back_inserter(values), [&](const Round& round) { return of(round.us); });
    return bench::median(std::move(values));
  }
  double us(std::size_t way) const {
    return median([way](const std::vector<double>& us) { return us[way]; });
  }
  /// Images per second of the first, in relation to another's.
  double rate(std::size_t other) const {
    const double images = static_cast<double>(ways_[0].batch) / static_cast<double>(ways_[other].batch);
    return images * median([other](const std::vector<double>& us) { return us[other] / us[0]; });
  }

 private:
  struct Round {
    std::vector<double> us;  // per step, by way
    double waited = 0;       // for a core: the largest share of a block
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

// ---- forward alone, and pieces ----

void evaluation(benchmark::State& state, const bench::Spec& spec, bool data_parallel) {
  set_num_threads(data_parallel ? 2 : 1);
  const bench::Problem problem = make_problem(spec);
  nn::Sequential model = make_model(problem);
  parallel::DataParallel dp(model, devices());
  const NoGradGuard no_grad;
  dp(problem.x);
  const std::int64_t before = dp.bytes_copied();
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(data_parallel ? dp(problem.x) : model(problem.x));
  }
  if (data_parallel) {
    state.counters["bytes_copied"] =
        static_cast<double>(dp.bytes_copied() - before) / static_cast<double>(state.iterations());
  }
  state.SetItemsProcessed(state.iterations() * spec.batch);
}
BENCHMARK_CAPTURE(evaluation, small_plain, small_net(), false)->Name("Evaluation/128-256-128-10,b16/plain");
BENCHMARK_CAPTURE(evaluation, small_dp, small_net(), true)->Name("Evaluation/128-256-128-10,b16/dp")->UseRealTime();
BENCHMARK_CAPTURE(evaluation, large_plain, large_net(), false)->Name("Evaluation/784-512-512-10,b256/plain");
BENCHMARK_CAPTURE(evaluation, large_dp, large_net(), true)->Name("Evaluation/784-512-512-10,b256/dp")->UseRealTime();

void scatter(benchmark::State& state) {
  const std::tuple<Tensor, Tensor> batch{randn({16, 128}), randint(0, 10, {16})};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(parallel::scatter(batch, devices()));
  }
}
BENCHMARK(scatter)->Name("Piece/scatter x and y");

void gather(benchmark::State& state) {
  const std::vector<Tensor> parts{randn({8, 10}), randn({8, 10}, {.device = "cpu:1"})};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(parallel::gather(parts, "cpu:0"));
  }
}
BENCHMARK(gather)->Name("Piece/gather");

void replicate(benchmark::State& state, bool changed) {
  const bench::Problem problem = make_problem(small_net());
  nn::Sequential model = make_model(problem);
  parallel::Replicas replicas(model, devices());
  std::vector<Tensor> parameters = model.parameters();
  for ([[maybe_unused]] auto _ : state) {
    if (changed) {
      const NoGradGuard no_grad;
      parameters.back().mutable_span<float>();
    }
    replicas.update(2);
  }
}
BENCHMARK_CAPTURE(replicate, unchanged, false)->Name("Piece/replicate, nothing changed");
BENCHMARK_CAPTURE(replicate, changed, true)->Name("Piece/replicate, one parameter changed");

void parallel_apply(benchmark::State& state) {
  set_num_threads(2);
  nn::Sequential model = make_model(make_problem(small_net()));
  parallel::Replicas replicas = parallel::replicate(model, devices());
  const std::vector<std::tuple<int>> inputs(2);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(parallel::parallel_apply([](int i) { return i; }, inputs, replicas));
  }
}
BENCHMARK(parallel_apply)->Name("Piece/parallel_apply of nothing")->UseRealTime();

void phase_scope(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    const parallel::PhaseScope timed(parallel::Phase::gather);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(phase_scope)->Name("Piece/PhaseScope, nothing collects");

// Speed without equal numbers would be a bug.
bool computes_the_same() {
  for (const bench::Spec& spec : {small_net(), large_net()}) {
    for (const Parallel parallel : {Parallel::dp, Parallel::dp_loss}) {
      set_num_threads(2);
      const auto dp =
          make_step(spec, {.parallel = parallel, .devices = 2, .threads = 2, .batch = spec.batch}, DeviceType::cpu);
      const auto plain = make_step(spec, {.batch = spec.batch}, DeviceType::cpu);
      const double found = bench::scaling::difference(*dp, *plain);
      if (!(found <= 1e-6)) {
        fmt::print(stderr, "{}, batch {}: gradients differ from one device's by {:.3g}, expected at most 1e-6\n",
                   bench::scaling::name_of(parallel), spec.batch, found);
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
