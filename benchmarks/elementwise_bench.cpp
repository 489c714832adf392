// Throughput of element-wise kernels on one thread, beside a floor for each in the same process: a copy of the same
// memory, or a loop that reads and writes the same memory and only adds. Blocks of both alternate and are timed by the
// thread's own clock, so that other programs disturb both alike. `share` is the median of floor time / kernel time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <tandem/core/isa.h>
#include <tandem/kernels/cross_entropy.h>
#include <tandem/kernels/dropout.h>
#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/kernels/reduce.h>
#include <tandem/tandem.h>

// The floors are compiled for the same instruction sets as the kernels.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_ISA [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define FOR_EACH_ISA
#endif

namespace {

using namespace tandem;
using namespace tandem::kernels;

using Values = std::vector<float>;

Values random_values(std::int64_t count, float scale = 1) {
  static std::mt19937 generator(20);
  std::normal_distribution<float> normal(0, scale);
  Values values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Body>
double seconds_of(std::int64_t times, Body&& body) {
  const double begin = thread_seconds();
  for (std::int64_t i = 0; i < times; ++i) {
    body();
    benchmark::ClobberMemory();
  }
  return thread_seconds() - begin;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Compares `body` with `floor` in alternating blocks of about a millisecond. One call of `body` handles `amount`, in
// 10^9 of `unit`.
template <class Body, class Floor>
void compare(benchmark::State& state, const char* unit, double amount, Body&& body, Floor&& floor) {
  seconds_of(1, body);
  seconds_of(1, floor);
  const double once = std::max(seconds_of(1, body), 1e-8);
  const std::int64_t times = std::max<std::int64_t>(1, static_cast<std::int64_t>(1e-3 / once));
  std::vector<double> ours, least, shares;
  for ([[maybe_unused]] auto _ : state) {
    ours.push_back(seconds_of(times, body));
    least.push_back(seconds_of(times, floor));
    shares.push_back(least.back() / ours.back());
    state.SetIterationTime(ours.back());
  }
  const double scale = 1e-9 * amount * static_cast<double>(times);
  state.counters[unit] = scale / median(ours);
  state.counters[std::string("floor ") + unit] = scale / median(least);
  state.counters["share"] = median(shares);
}

void function_of(benchmark::State& state, PointwiseOp op) {
  const std::int64_t count = state.range(0);
  Values x = random_values(count, 4);
  Values y(x.size());
  if (op == PointwiseOp::log) {
    std::transform(x.begin(), x.end(), x.begin(), [](float value) { return std::abs(value) + 1e-3F; });
  }
  Pointwise kernel{.op = op,
                   .dtype = DType::f32,
                   .loop = {1, {count}},
                   .out = {y.data(), {1}},
                   .in = {{x.data(), {1}}, {x.data(), {1}}, {x.data(), {1}}}};
  compare(
      state, "Gelem/s", static_cast<double>(count), [&] { launch(context_for(Device()), kernel); },
      [&] { std::memcpy(y.data(), x.data(), x.size() * sizeof(float)); });
}

void cross_entropy_and_gradient(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t classes = state.range(1);
  const Values logits = random_values(rows * classes);
  Values gradient(logits.size());
  Values normalizer(static_cast<std::size_t>(2 * rows));
  std::vector<std::int64_t> indices(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    indices[static_cast<std::size_t>(row)] = row * 7 % classes;
  }
  float scale = 0;
  float loss = 0;
  const float one = 1;
  const CrossEntropy forward{.dtype = DType::f32,
                             .loss_per_row = false,
                             .mean = true,
                             .rows = rows,
                             .classes = classes,
                             .logits = logits.data(),
                             .target = {.indices = indices.data()},
                             .normalizer = normalizer.data(),
                             .scale = &scale,
                             .loss = &loss,
                             .logits_grad = gradient.data()};
  const RescaleGradient backward{
      .dtype = DType::f32, .count = rows * classes, .grad = &one, .gradient = gradient.data()};
  compare(
      state, "Gelem/s", static_cast<double>(rows * classes),
      [&] {
        launch(context_for(Device()), forward);
        launch(context_for(Device()), backward);
      },
      [&] { std::memcpy(gradient.data(), logits.data(), logits.size() * sizeof(float)); });
}

FOR_EACH_ISA void add_four(float* w, const float* g, float* m, float* v, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    m[i] = m[i] + g[i];
    v[i] = v[i] + g[i] * g[i];
    w[i] = w[i] + g[i];
  }
}

void adam(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Values grad = random_values(count, 1e-3F);
  Values param = random_values(count), m(grad.size()), v(grad.size());
  const StepState step{.learning_rate = 1e-4, .step = 100, .momentum = 0.9, .weight_decay = 0};
  const Adam kernel{.dtype = DType::f32,
                    .count = count,
                    .param = param.data(),
                    .grad = grad.data(),
                    .exp_avg = m.data(),
                    .exp_avg_sq = v.data(),
                    .state = &step,
                    .beta2 = 0.999,
                    .eps = 1e-8,
                    .decoupled = false};
  compare(
      state, "GB/s", 28 * static_cast<double>(count), [&] { launch(context_for(Device()), kernel); },
      [&] { add_four(param.data(), grad.data(), m.data(), v.data(), count); });
}

FOR_EACH_ISA void add_rows(const float* in, std::int64_t rows, std::int64_t columns, float* out) {
  constexpr std::int64_t kWidth = 64;
  for (std::int64_t first = 0; first < columns; first += kWidth) {
    const std::int64_t width = std::min(kWidth, columns - first);
    float sums[kWidth] = {};
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* line = in + row * columns + first;
      if (width == kWidth) {
        for (std::int64_t c = 0; c < kWidth; ++c) {
          sums[c] += line[c];
        }
      } else {
        for (std::int64_t c = 0; c < width; ++c) {
          sums[c] += line[c];
        }
      }
    }
    std::copy_n(sums, width, out + first);
  }
}

void bias_gradient(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t columns = state.range(1);
  Values in = random_values(rows * columns);
  Values out(static_cast<std::size_t>(columns));
  Reduce kernel{.op = ReduceOp::sum,
                .dtype = DType::f32,
                .kept = {1, {columns}},
                .reduced = {1, {rows}},
                .out = {out.data(), {1}},
                .in = {in.data(), {1}},
                .in_reduced = {in.data(), {columns}}};
  compare(
      state, "GB/s", 4 * static_cast<double>(rows * columns), [&] { launch(context_for(Device()), kernel); },
      [&] { add_rows(in.data(), rows, columns, out.data()); });
}

// Times forward and backward together. The floor copies twice and draws no random numbers, although drawing takes most
// of the time.
void dropout_and_gradient(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  const Values x = random_values(count);
  Values y(x.size());
  std::vector<std::uint8_t> mask(x.size());
  StepState step;
  const Dropout forward{.dtype = DType::f32,
                        .count = count,
                        .p = 0.3,
                        .in = x.data(),
                        .out = y.data(),
                        .mask = mask.data(),
                        .seed = 1,
                        .offset = 0,
                        .state = &step};
  const DropoutGrad backward{
      .dtype = DType::f32, .count = count, .p = 0.3, .grad = x.data(), .mask = mask.data(), .in_grad = y.data()};
  compare(
      state, "Gelem/s", static_cast<double>(count),
      [&] {
        launch(context_for(Device()), forward);
        launch(context_for(Device()), backward);
      },
      [&] {
        std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
        benchmark::ClobberMemory();
        std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
      });
}

void exp_of(benchmark::State& state) { function_of(state, PointwiseOp::exp); }
void log_of(benchmark::State& state) { function_of(state, PointwiseOp::log); }
void tanh_of(benchmark::State& state) { function_of(state, PointwiseOp::tanh); }

void function_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4096)->Arg(262'144)->Arg(16'777'216)->UseManualTime();
}

BENCHMARK(exp_of)->Name("exp")->Apply(function_sizes);
BENCHMARK(log_of)->Name("log")->Apply(function_sizes);
BENCHMARK(tanh_of)->Name("tanh")->Apply(function_sizes);
BENCHMARK(cross_entropy_and_gradient)
    ->Name("cross-entropy+gradient")
    ->Args({128, 10})
    ->Args({256, 1000})
    ->UseManualTime();
BENCHMARK(dropout_and_gradient)->Name("dropout+gradient")->Arg(24'576)->Arg(1'048'576)->UseManualTime();
BENCHMARK(adam)->Name("Adam")->Arg(66'816)->Arg(668'672)->Arg(25'067'520)->UseManualTime();
BENCHMARK(bias_gradient)->Name("bias gradient")->Args({128, 10})->Args({128, 512})->Args({256, 4096})->UseManualTime();

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::AddCustomContext("instruction set", core::to_string(core::isa()));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
