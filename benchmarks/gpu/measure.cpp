#include "gpu/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <tandem/core/cuda_stream.h>

namespace bench::gpu {

namespace {

namespace cuda = tandem::cuda;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Block {
  double us, wall_us;
};

Block time_block(const cuda::Stream& stream, const std::function<void()>& body, int calls) {
  cuda::Event begin(stream.device(), true);
  cuda::Event end(stream.device(), true);
  stream.synchronize();
  const double start = now_us();
  begin.record(stream);
  for (int i = 0; i < calls; ++i) {
    body();
  }
  end.record(stream);
  end.synchronize();
  const double wall = now_us() - start;
  return {1e3 * begin.elapsed_time(end) / calls, wall / calls};
}

// The quantile `part` (0 to 1), interpolated between neighbouring values.
double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

Measured measure(const Effort& effort, const std::function<void()>& body) {
  // A GPU's queue holds about a thousand launches. More calls would make the host wait for a place and count the wait.
  constexpr int kQueued = 20;
  const cuda::Stream stream = cuda::current_stream();
  const double start = now_us();
  for (int i = 0; i < effort.warm_ups && (i == 0 || now_us() - start < 1e6 * effort.warm_up_seconds); ++i) {
    body();
    stream.synchronize();
  }
  const double once = std::max(time_block(stream, body, 1).us, 0.1);
  Measured result;
  result.calls_per_block = static_cast<int>(std::clamp(1e3 * effort.block_ms / once, 1.0, 1e5));
  std::vector<double> us;
  std::vector<double> wall;
  std::vector<double> host;
  for (int i = 0; i < effort.blocks; ++i) {
    const Block block = time_block(stream, body, result.calls_per_block);
    us.push_back(block.us);
    wall.push_back(block.wall_us);
    const int queued = std::min(kQueued, result.calls_per_block);
    const double began = now_us();
    for (int call = 0; call < queued; ++call) {
      body();
    }
    host.push_back((now_us() - began) / queued);
    stream.synchronize();
  }
  for (std::vector<double>* values : {&us, &wall, &host}) {
    std::ranges::sort(*values);
  }
  result.us = quantile(us, 0.5);
  result.q1 = quantile(us, 0.25);
  result.q3 = quantile(us, 0.75);
  result.wall_us = quantile(wall, 0.5);
  result.host_us = quantile(host, 0.5);
  return result;
}

}  // namespace bench::gpu
