#include <algorithm>
#include <numeric>

#include <cuda_bf16.h>

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
  EXPECT_CUDA(launch(stream, 4, 256, 0, add, x.data(), y.data(), sum.data(), n));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<float> values = sum.values();
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 2.0F * static_cast<float>(i));
  }
}

// Computes the sum of each block by shuffles and shared memory.
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
  EXPECT_CUDA(launch(stream, 8, 256, 0, sum_blocks, x.data(), sums.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(sums.values(), std::vector<float>(8, 256.0F));
}

// Calls every warp function, on a mask of half a warp if it takes one.
__global__ void warp_functions(int* results) {
  const unsigned lane = threadIdx.x;
  int* own = results + 8 * lane;
  if (lane < 16) {
    const unsigned mask = 0x0000FFFFU;
    own[0] = __shfl_sync(mask, static_cast<int>(lane), 3, 8);
    own[1] = __shfl_xor_sync(mask, static_cast<int>(lane), 1);
    own[2] = __shfl_up_sync(mask, static_cast<int>(lane), 2, 8);
    own[3] = __shfl_down_sync(mask, static_cast<int>(lane), 2, 8);
    own[4] = static_cast<int>(__ballot_sync(mask, lane % 2));
    own[5] = __any_sync(mask, lane == 5);
    own[6] = __all_sync(mask, lane < 15);
    const double wide = __shfl_xor_sync(mask, 0.5 + lane, 8);
    own[7] = static_cast<int>(2 * wide);
  } else {
    __syncwarp(0xFFFF0000U);
    own[0] = __shfl_sync(0xFFFF0000U, static_cast<int>(lane), 20);
  }
  __syncwarp();
}

TEST(Warp, ExchangesWithinMasksAndWidths) {
  const Array<int> results(std::vector<int>(8 * 32, -1));
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 32, 0, warp_functions, results.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::vector<int> values = results.values();
  for (int lane = 0; lane < 32; ++lane) {
    const int* own = values.data() + 8 * lane;
    if (lane >= 16) {
      EXPECT_EQ(own[0], 20);
      continue;
    }
    EXPECT_EQ(own[0], lane / 8 * 8 + 3);
    EXPECT_EQ(own[1], lane ^ 1);
    EXPECT_EQ(own[2], lane % 8 < 2 ? lane : lane - 2);
    EXPECT_EQ(own[3], lane % 8 >= 6 ? lane : lane + 2);
    EXPECT_EQ(own[4], 0xAAAA);
    EXPECT_EQ(own[5], 1);
    EXPECT_EQ(own[6], 0);
    EXPECT_EQ(own[7], 2 * (lane ^ 8) + 1);
  }
}

__global__ void votes_of_block(int* results) {
  const int last = threadIdx.x == blockDim.x - 1 ? 1 : 0;
  const int any = __syncthreads_or(last);
  const int all = __syncthreads_and(1 - last);
  const int count = __syncthreads_count(threadIdx.x % 2 == 0);
  results[threadIdx.x] = 10000 * any + 1000 * all + count;
}

TEST(Barrier, CountsPredicates) {
  const Array<int> results(70);
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 70, 0, votes_of_block, results.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(results.values(), std::vector<int>(70, 10035));
}

__global__ void reverse(int* values) {
  int* copy = static_cast<int*>(emulated_gpu::dynamic_shared());
  copy[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

TEST(Shared, DynamicMemoryNeedsPermissionBeyond48K) {
  std::vector<int> values(1024);
  std::iota(values.begin(), values.end(), 0);
  const Array<int> array(values);
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 1024, 4096, reverse, array.data()));
  EXPECT_EQ(launch(stream, 1, 1024, (48 << 10) + 1, reverse, array.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1),
            cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  EXPECT_CUDA(launch(stream, 1, 1024, 100 << 10, reverse, array.data()));
  EXPECT_CUDA(launch(stream, 1, 1024, 4096, reverse, array.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(array.values(), values);
}

TEST(Launch, ChecksItsConfiguration) {
  const Stream stream;
  int* none = nullptr;
  for (const auto& [grid, block] : std::vector<std::pair<dim3, dim3>>{
           {1, 1025}, {1, dim3(1, 1, 65)}, {1, dim3(64, 32)}, {0, 32}, {dim3(1, 65536), 1}, {1, 0}}) {
    EXPECT_EQ(launch(stream, grid, block, 0, reverse, none), cudaErrorInvalidConfiguration);
  }
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(launch(nullptr, 1, 1, 0, reverse, none), cudaErrorNotSupported);
}

__global__ void places(int* count) {
  atomicAdd(
      count + threadIdx.x + 2 * (threadIdx.y + 3 * threadIdx.z) + 24 * (blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z)),
      1);
}

TEST(Launch, VisitsEveryPlaceOnce) {
  const Array<int> count(std::vector<int>(24 * 24, 0));
  const Stream stream;
  EXPECT_CUDA(launch(stream, dim3(2, 3, 4), dim3(2, 3, 4), 0, places, count.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(count.values(), std::vector<int>(24 * 24, 1));
}

// A sum without its barrier: one thread reads values that others may not have written yet.
__global__ void forgetful(int* sum) {
  __shared__ int parts[64];
  parts[threadIdx.x] = 1;
  if (threadIdx.x == blockDim.x - 1) {
    int all = 0;
    for (const int part : parts) {
      all += part;
    }
    *sum = all;
  }
  parts[threadIdx.x] = 0;
}

TEST(Order, ShowsAMissingBarrier) {
  const Array<int> sum(1);
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 64, 0, forgetful, sum.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_NE(sum.values()[0], 64);
}

TEST(Launch, TellsAboutKernels) {
  int blocks = 0;
  EXPECT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, places, 256, 0));
  EXPECT_EQ(blocks, 8);
  EXPECT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, places, 256, 100 << 10));
  EXPECT_EQ(blocks, 2);
  cudaFuncAttributes attributes{};
  EXPECT_CUDA(cudaFuncGetAttributes(&attributes, places));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
}

// Exchanges 2-byte values.
__global__ void exchange_halves(const __nv_bfloat16* x, __nv_bfloat16* y) {
  __shared__ __align__(16) __nv_bfloat16 copy[32];
  copy[threadIdx.x] = __float2bfloat16(2.0F * __bfloat162float(__ldg(x + threadIdx.x)));
  __syncthreads();
  y[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFU, copy[threadIdx.x], 1);
}

TEST(Warp, ExchangesHalves) {
  std::vector<__nv_bfloat16> values(32, __float2bfloat16(1.0F));
  values[5] = __float2bfloat16(5.0F);
  const Array<__nv_bfloat16> x(values);
  const Array<__nv_bfloat16> y(32);
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 32, 0, exchange_halves, x.data(), y.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(__bfloat162float(y.values()[4]), 10.0F);
}

struct Sums {
  int i;
  unsigned u;
  unsigned long long l;
  float f;
  double d;
  int largest;
  int smallest;
  unsigned bits;
  unsigned rounds;
};

__global__ void atomics(Sums* sums) {
  atomicAdd(&sums->i, 1);
  atomicAdd(&sums->u, 2);
  atomicAdd(&sums->l, 3);
  atomicAdd(&sums->f, 0.5F);
  atomicAdd(&sums->d, 0.25);
  atomicMax(&sums->largest, static_cast<int>(threadIdx.x));
  atomicMin(&sums->smallest, -static_cast<int>(threadIdx.x));
  atomicOr(&sums->bits, 1U << (threadIdx.x % 32));
  atomicInc(&sums->rounds, 99);
  // A lock whose waiters yield, so that other threads of the block can continue.
  __shared__ unsigned lock;
  if (threadIdx.x == 0) {
    lock = 0;
  }
  __syncthreads();
  while (atomicCAS(&lock, 0, 1) != 0) {
    __nanosleep(10);
  }
  __nanosleep(10);
  atomicExch(&lock, 0);
}

TEST(Atomics, Add) {
  const Array<Sums> sums(std::vector<Sums>(1));
  const Stream stream;
  EXPECT_CUDA(launch(stream, 2, 64, 0, atomics, sums.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const Sums s = sums.values()[0];
  EXPECT_EQ(s.i, 128);
  EXPECT_EQ(s.u, 256U);
  EXPECT_EQ(s.l, 384U);
  EXPECT_EQ(s.f, 64.0F);
  EXPECT_EQ(s.d, 32.0);
  EXPECT_EQ(s.largest, 63);
  EXPECT_EQ(s.smallest, -63);
  EXPECT_EQ(s.bits, 0xFFFFFFFFU);
  EXPECT_EQ(s.rounds, 28U) << "atomicInc starts again after 99";
}

TEST(Functions, Compute) {
  EXPECT_EQ(__umulhi(0x80000000U, 6), 3U);
  EXPECT_EQ(__umul64hi(1ULL << 63, 6), 3U);
  EXPECT_EQ(__popc(0xF0U), 4);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__brev(1U), 0x80000000U);
  EXPECT_EQ(__uint_as_float(__float_as_uint(1.5F)), 1.5F);
  EXPECT_EQ(rsqrtf(4.0F), 0.5F);
  EXPECT_EQ(rsqrt(4.0), 0.5);
  EXPECT_EQ(__fdividef(1.0F, 4.0F), 0.25F);
  EXPECT_EQ(__expf(0.0F), 1.0F);
  EXPECT_EQ(min(3, 4) + max(3, 4), 7);
  const float4 value{1, 2, 3, 4};
  EXPECT_EQ(__ldg(&value).z, 3.0F);
}

}  // namespace
