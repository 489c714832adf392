// Measures the engine's overhead around an op that does almost nothing: one element, with and without recording. The
// floor is one multiplication. The overhead consists of checks, allocation, launch and, when recording, the graph node.
// `backward` is a backward pass over one such node.

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

namespace {

using namespace tandem;

// Times one call of an op. The result is dropped, and with it its node.
template <class Op>
void measure(benchmark::State& state, bool recorded, Op op) {
  Tensor x = full({1}, 1.5);
  const Tensor y = full({1}, 0.5);
  x.requires_grad_(recorded);
  for ([[maybe_unused]] auto _ : state) {
    Tensor result = op(x, y);
    benchmark::DoNotOptimize(result);
  }
}

template <class Op>
void add_op(const char* name, Op op) {
  for (const bool recorded : {false, true}) {
    const std::string full_name = std::string(name) + (recorded ? "/recorded" : "/plain");
    benchmark::RegisterBenchmark(full_name.c_str(), [=](benchmark::State& state) { measure(state, recorded, op); });
  }
}

void backward_of_mul(benchmark::State& state) {
  const Tensor x = full({1}, 1.5).requires_grad_();
  const Tensor y = full({1}, 0.5);
  for ([[maybe_unused]] auto _ : state) {
    (x * y).backward();
    x.zero_grad();
  }
}
BENCHMARK(backward_of_mul)->Name("mul/recorded+backward");

void floor_of_one(benchmark::State& state) {
  float x = 1.5F;
  const float y = 0.5F;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(x);
    float product = x * y;
    benchmark::DoNotOptimize(product);
  }
}
BENCHMARK(floor_of_one)->Name("floor: one multiplication");

}  // namespace

int main(int argc, char** argv) {
  add_op("add", [](const Tensor& x, const Tensor& y) { return x + y; });
  add_op("mul", [](const Tensor& x, const Tensor& y) { return x * y; });
  add_op("mul scalar", [](const Tensor& x, const Tensor&) { return x * 2; });
  add_op("relu", [](const Tensor& x, const Tensor&) { return relu(x); });
  add_op("exp", [](const Tensor& x, const Tensor&) { return exp(x); });
  add_op("sum", [](const Tensor& x, const Tensor&) { return x.sum(); });
  add_op("reshape", [](const Tensor& x, const Tensor&) { return x.reshape({1, 1}); });
  add_op("select", [](const Tensor& x, const Tensor&) { return x[0]; });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
