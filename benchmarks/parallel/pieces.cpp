#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

#include "parallel/nets.h"
#include "step/model.h"

namespace bench::data_parallel {

namespace {

using namespace tandem;

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

enum class Listener { none, step_times, trace };

void span_scope(benchmark::State& state, Listener listener) {
  std::optional<StepTimes> times;
  std::optional<telemetry::Trace> trace;
  if (listener == Listener::step_times) {
    times.emplace();
  } else if (listener == Listener::trace) {
    trace.emplace();
  }
  for ([[maybe_unused]] auto _ : state) {
    const SpanScope timed(Phase::gather);
    benchmark::ClobberMemory();
  }
}
BENCHMARK_CAPTURE(span_scope, none, Listener::none)->Name("Piece/SpanScope, nobody listens");
BENCHMARK_CAPTURE(span_scope, step_times, Listener::step_times)->Name("Piece/SpanScope, StepTimes collects");
BENCHMARK_CAPTURE(span_scope, trace, Listener::trace)->Name("Piece/SpanScope, a Trace records");

}  // namespace

}  // namespace bench::data_parallel
