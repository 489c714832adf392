#include "own_noise.h"

#include <tandem/kernels/cuda/cuda_queue.h>
#include <tandem/kernels/philox.h>

namespace own {

namespace {

using namespace tandem::kernels;

constexpr int kThreads = 128;

__global__ void draw(Noise k, StepArgument state, float* drawn) {
  const std::int64_t i = 4 * (std::int64_t{blockIdx.x} * kThreads + threadIdx.x);
  if (i < k.count) {
    const auto block = philox(k.seed, state.get().random_offset + k.offset + static_cast<std::uint64_t>(i / 4));
    for (int lane = 0; lane < 4; ++lane) {
      drawn[i + lane] = uniform_f32(block[static_cast<std::size_t>(lane)]);
    }
  }
}

__global__ void copy(Noise k, const float* drawn) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < k.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    k.out[i] = drawn[i];
  }
}

}  // namespace

void run(OnCuda, Context& context, const Noise& k) {
  const CudaQueue queue(context);
  auto* drawn = static_cast<float*>(queue.workspace(static_cast<std::size_t>(k.count) * sizeof(float)));
  const auto blocks = static_cast<unsigned int>((k.count / 4 + kThreads - 1) / kThreads);
  queue.launch(k.kName, blocks, kThreads, 0, draw, k, queue.step(k.state), drawn);
  queue.launch(k.kName, queue.blocks_for(k.count, kThreads), kThreads, 0, copy, k, drawn);
}

}  // namespace own
