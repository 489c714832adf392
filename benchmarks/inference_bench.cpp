// A forward pass of 128-256-128-10 with ReLU on one thread, for one sample and for 64: eager, captured, and as three
// launched kernels, which is the captured call without the engine. The kernels' bytes are those of the weights, which
// one sample has to read: the bandwidth of the cache is the floor there. peers/onnxruntime_inference.py measures ONNX
// Runtime on a net of the same sizes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <tandem/kernels/launch.h>
#include <tandem/kernels/matmul.h>
#include <tandem/tandem.h>

namespace {

using namespace tandem;

const std::vector<std::int64_t> kSizes{128, 256, 128, 10};

nn::Sequential make_model() {
  manual_seed(20);
  return nn::Sequential(nn::Linear(kSizes[0], kSizes[1]), nn::ReLU(), nn::Linear(kSizes[1], kSizes[2]), nn::ReLU(),
                        nn::Linear(kSizes[2], kSizes[3]));
}

void eager(benchmark::State& state) {
  const NoGradGuard no_grad;
  const nn::Sequential model = make_model();
  const Tensor x = randn({state.range(0), kSizes[0]});
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(model(x));
  }
}

void captured(benchmark::State& state) {
  const NoGradGuard no_grad;
  const nn::Sequential model = make_model();
  auto predict = graph::capture([&](const Tensor& x) { return model(x); });
  const Tensor x = randn({state.range(0), kSizes[0]});
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(predict(x));
  }
}

void kernels_alone(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const nn::Sequential model = make_model();
  const std::vector<Tensor> parameters = model.parameters();
  std::vector<std::vector<float>> values{randn({rows, kSizes[0]}).to_vector<float>()};
  std::vector<kernels::Matmul> products;
  for (std::size_t i = 0; i + 1 < kSizes.size(); ++i) {
    values.emplace_back(static_cast<std::size_t>(rows * kSizes[i + 1]));
  }
  for (std::size_t i = 0; i + 1 < kSizes.size(); ++i) {
    products.push_back({.dtype = DType::f32,
                        .m = rows,
                        .n = kSizes[i + 1],
                        .k = kSizes[i],
                        .a = {values[i].data(), kSizes[i], 1},
                        .b = {parameters[2 * i].data<float>(), 1, kSizes[i]},
                        .out = values[i + 1].data(),
                        .out_stride = kSizes[i + 1],
                        .after = {.bias = parameters[2 * i + 1].data<float>(), .relu = i + 2 < kSizes.size()}});
  }
  kernels::Context& context = kernels::context_for(Device());
  for ([[maybe_unused]] auto _ : state) {
    for (const kernels::Matmul& product : products) {
      kernels::launch(context, product);
    }
    benchmark::ClobberMemory();
  }
  std::int64_t weights = 0;
  for (const Tensor& parameter : parameters) {
    weights += parameter.numel();
  }
  state.SetBytesProcessed(state.iterations() * weights * 4);
}

void batches(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("batch")->Arg(1)->Arg(64)->Unit(benchmark::kMicrosecond);
}
BENCHMARK(eager)->Apply(batches);
BENCHMARK(captured)->Apply(batches);
BENCHMARK(kernels_alone)->Name("kernels")->Apply(batches);

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
