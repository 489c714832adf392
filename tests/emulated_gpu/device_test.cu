#include <numeric>

#include "test_support.h"

namespace {

__global__ void add(const float* a, const float* b, float* sum, int n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(n)) {
    sum[i] = a[i] + b[i];
  }
}

TEST(Kernel, Adds) {
  const int n = 1000;
  std::vector<float> a(n);
  std::iota(a.begin(), a.end(), 0.0F);
  const Array<float> x(a);
  const Array<float> y(a);
  const Array<float> sum(n);
  const Stream stream;
  EXPECT_CUDA(LAUNCH(stream, 4, 256, 0, add, x.data(), y.data(), sum.data(), n));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<float> values = sum.values();
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 2.0F * static_cast<float>(i));
  }
}

// The sum of each block, by shuffles and shared memory.
__global__ void sum_blocks(const float* x, float* sums) {
  __shared__ float parts[32];
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned step = 16; step > 0; step /= 2) {
    value += __shfl_down_sync(0xFFFFFFFFU, value, step);
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0F;
    for (int step = 16; step > 0; step /= 2) {
      value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
    }
    if (threadIdx.x == 0) {
      sums[blockIdx.x] = value;
    }
  }
}

TEST(Kernel, SumsWithBarriersAndShuffles) {
  const Array<float> x(std::vector<float>(8 * 256, 1.0F));
  const Array<float> sums(8);
  const Stream stream;
  EXPECT_CUDA(LAUNCH(stream, 8, 256, 0, sum_blocks, x.data(), sums.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(sums.values(), std::vector<float>(8, 256.0F));
}

}  // namespace
