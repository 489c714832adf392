#include <algorithm>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <tandem/core/cuda/runtime.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/tandem.h>

#include "gpu/bench.h"
#include "gpu/cuda/null.h"
#include "step/precision_scope.h"

// Measures the limits that other results are compared with: bandwidth, products, launches.

namespace bench::gpu {

namespace {

using namespace tandem;

// Times of both copies: the engine's kernel and the driver's.
struct Copies {
  Measured kernel, driver;
  double bytes;
};

Copies time_copies(const Options& options) {
  const std::int64_t count = (options.smoke ? std::int64_t{1} << 16 : std::int64_t{1} << 32) / item_size(DType::f32);
  const Tensor from = randn({count});
  Tensor to = empty({count});
  const auto bytes = static_cast<std::size_t>(count) * item_size(DType::f32);
  const NoGradGuard no_grad;
  Copies copies{.kernel = {}, .driver = {}, .bytes = 2.0 * static_cast<double>(bytes)};
  copies.kernel = measure(options.effort, [&] { to.copy_(from); });
  copies.driver = measure(options.effort, [&] {
    cuda::require(cudaMemcpyAsync(to.raw().data(), from.raw().data(), bytes, cudaMemcpyDeviceToDevice,
                                  cuda::current_stream().handle()),
                  "cudaMemcpyAsync");
  });
  return copies;
}

struct Product {
  Measured measured;
  double flops;
};

Product time_product(const Options& options, DType dtype, bool tf32) {
  const std::int64_t n = options.smoke ? 32 : 8192;
  const Tensor a = randn({n, n}).to(dtype);
  const Tensor b = randn({n, n}).to(dtype);
  const NoGradGuard no_grad;
  const PrecisionScope precision(tf32 ? "high" : "highest");
  return {.measured = measure(options.effort, [&] { a.matmul(b); }), .flops = 2.0 * static_cast<double>(n * n * n)};
}

// Times a chain of empty kernels that is launched as one graph.
Measured time_graph(const Options& options, int nodes) {
  CUstream_st* const stream = cuda::current_stream().handle();
  cudaGraph_t graph{};
  cudaGraphExec_t exec{};
  cuda::require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < nodes; ++i) {
    cuda::require(launch_null(stream), "null_kernel");
  }
  cuda::require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cuda::require(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  const Measured measured =
      measure(options.effort, [&] { cuda::require(cudaGraphLaunch(exec, stream), "cudaGraphLaunch"); });
  cuda::require(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
  cuda::require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return measured;
}

}  // namespace

double Ceilings::bytes_per_us() {
  if (bytes_per_us_ == 0) {
    const Copies copies = time_copies(options_);
    bytes_per_us_ = copies.bytes / std::min(copies.kernel.us, copies.driver.us);
  }
  return bytes_per_us_;
}

double Ceilings::flops_per_us(DType dtype, bool tf32) {
  double& known = flops_per_us_[{dtype, tf32}];
  if (known == 0) {
    const Product product = time_product(options_, dtype, tf32);
    known = product.flops / product.measured.us;
  }
  return known;
}

double Ceilings::floor_us(double bytes, double flops, DType dtype, bool tf32) {
  return bytes / bytes_per_us() + (flops > 0 ? flops / flops_per_us(dtype, tf32) : 0);
}

void run_ceilings(const Options& options, Ceilings& ceilings) {
  const auto what = [](const std::string& name) { return telemetry::Fields{{"workload", "W0"}, {"case", name}}; };
  const Copies copies = time_copies(options);
  const auto rate = [&](const Measured& measured) {
    return telemetry::Fields{{"gb_per_s", copies.bytes / measured.us * 1e-3}};
  };
  print_result(what("copy 8 GB"), "kernel", copies.kernel, 0, rate(copies.kernel));
  print_result(what("copy 8 GB"), "driver", copies.driver, 0, rate(copies.driver));
  // Measure twice: the difference shows how precise a share of the floor is.
  for (const auto& [dtype, tf32] : {std::pair(DType::bf16, false), {DType::f32, false}, {DType::f32, true}}) {
    const double flops_per_us = ceilings.flops_per_us(dtype, tf32);
    const Product product = time_product(options, dtype, tf32);
    print_result(what(fmt::format("gemm 8192 {}", tf32 ? "tf32" : name(dtype))), "cublaslt", product.measured,
                 product.flops / flops_per_us, {{"tflops", product.flops / product.measured.us * 1e-6}});
  }
  const Measured launch =
      measure(options.effort, [] { cuda::require(launch_null(cuda::current_stream().handle()), "null_kernel"); });
  print_result(what("null kernel"), "launch", launch, 0);
  for (const int nodes : {1, 10, 100}) {
    print_result(what(fmt::format("graph of {} null kernels", nodes)), "graph", time_graph(options, nodes), 0);
  }
}

}  // namespace bench::gpu
