// Measures pipelines over parts of the CPU beside one part with one thread, in turns, so that disturbances of the
// machine hit both. Each stage has one thread.
//
//   us           of a step: 8 Linear layers of 512 with ReLU, batch 256, without the update
//   one_us       the same micro-batches on one device, gradients added up
//   whole_us     the whole batch at once on one device
//   speedup      one_us / us
//   bound        of the schedule: S M / (M + S - 1) with S stages and M micro-batches
//   of_bound     speedup / bound
//   handing_over of the stages' time, what neither the schedule nor unequal stages explain, in percent
// Values are medians over rounds.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <tandem/tandem.h>

#include "step/clock.h"
#include "step/measure.h"

namespace {

using namespace tandem;

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kWidth = 512;
constexpr int kLayers = 8;
constexpr int kSteps = 10;  // of a round

nn::Sequential make_net() {
  manual_seed(1);
  nn::Sequential model;
  for (int layer = 0; layer < kLayers; ++layer) {
    model.push_back(nn::Linear(kWidth, kWidth));
    model.push_back(nn::ReLU());
  }
  return model;
}

Tensor square_loss(const Tensor& output, const Tensor& y) { return nn::mse_loss(output, y); }

template <class Step>
double us_of(const Step& step) {
  const double began = bench::now(false);
  for (int i = 0; i < kSteps; ++i) {
    step();
  }
  return 1e6 * (bench::now(false) - began) / kSteps;
}

void pipeline(benchmark::State& state, parallel::Schedule schedule) {
  const auto microbatches = state.range(0);
  constexpr int kStages = 2;
  if (static_cast<int>(num_threads()) < kStages) {
    state.SkipWithError("needs two cores");
    return;
  }
  nn::Sequential model = make_net();
  nn::Sequential alone = make_net();
  parallel::Pipeline two(model, {Device("cpu:0"), Device("cpu:1")},
                         {.microbatches = microbatches, .schedule = schedule});
  const Tensor x = randn({kRows, kWidth});
  const Tensor y = randn({kRows, kWidth});
  const int threads = num_threads();
  const auto step_alone = [&](std::int64_t parts) {
    for (std::int64_t m = 0; m < parts; ++m) {
      const std::int64_t rows = kRows / parts;
      (square_loss(alone(x.narrow(0, m * rows, rows)), y.narrow(0, m * rows, rows)) *
       (1.0 / static_cast<double>(parts)))
          .backward();
    }
  };
  std::vector<double> us;
  std::vector<double> one_us;
  std::vector<double> whole_us;
  std::vector<double> speedups;
  for (auto _ : state) {
    us.push_back(us_of([&] { two.step(x, y, square_loss); }));
    set_num_threads(1);
    one_us.push_back(us_of([&] { step_alone(microbatches); }));
    whole_us.push_back(us_of([&] { step_alone(1); }));
    set_num_threads(threads);
    speedups.push_back(one_us.back() / us.back());
  }
  const parallel::PipelineReport report = two.report();
  const double bound = kStages * (1 - parallel::bubble_of(kStages, static_cast<std::size_t>(microbatches)));
  state.counters["us"] = bench::median(us);
  state.counters["one_us"] = bench::median(one_us);
  state.counters["whole_us"] = bench::median(whole_us);
  state.counters["speedup"] = bench::median(speedups);
  state.counters["bound"] = bound;
  state.counters["of_bound"] = bench::median(speedups) / bound;
  state.counters["handing_over"] = 100 * (report.bubble() - report.bubble_of_schedule() - report.bubble_of_imbalance());
}

void one_forward_one_backward(benchmark::State& state) { pipeline(state, parallel::Schedule::one_f_one_b); }
void gpipe(benchmark::State& state) { pipeline(state, parallel::Schedule::gpipe); }

BENCHMARK(one_forward_one_backward)->Name("Pipeline/1F1B")->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Iterations(15);
BENCHMARK(gpipe)->Name("Pipeline/GPipe")->Arg(8)->Iterations(15);

}  // namespace

BENCHMARK_MAIN();
