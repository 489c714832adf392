#include "kernels_test.h"

// Correct kernels, of which the oracle must report nothing.

namespace {

constexpr unsigned kThreads = 64;

__global__ void reverse(int* out, int rows) {
  __shared__ int values[kThreads];
  for (int row = 0; row < rows; ++row) {
    values[threadIdx.x] = row + static_cast<int>(threadIdx.x);
    __syncthreads();
    out[row * static_cast<int>(kThreads) + static_cast<int>(threadIdx.x)] = values[kThreads - 1 - threadIdx.x];
    __syncthreads();
  }
}
TEST(Races, BarrierOrdersTheBlock) {
  const Array<int> out(3 * kThreads);
  run_kernel(true, 1, kThreads, reverse, out.data(), 3);
  EXPECT_EQ(out.values()[0], 63);
}

__global__ void exchange(int* out) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp();
  int sum = values[threadIdx.x ^ 1];
  __syncwarp();
  values[threadIdx.x] = sum;
  sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
  out[threadIdx.x] = sum + values[threadIdx.x ^ 31];
}
TEST(Races, MeetingsOfAWarpOrderItsLanes) {
  const Array<int> out(kThreads);
  run_kernel(true, 1, kThreads, exchange, out.data());
  EXPECT_EQ(out.values()[0], 1 + 0 + 30);
}

// Lane 0 hears from lane 1, and lane 2 from lane 0: so lane 2 may read what lane 1 wrote.
__global__ void chain(int* out) {
  __shared__ int value;
  if (threadIdx.x == 1) {
    value = 7;
  }
  if (threadIdx.x < 2) {
    __syncwarp(0b011);
  }
  if (threadIdx.x != 1) {
    __syncwarp(0b101);
  }
  if (threadIdx.x == 2) {
    *out = value;
  }
}
TEST(Races, OrderOfLanesIsHandedOn) {
  const Array<int> out(1);
  run_kernel(true, 1, 3, chain, out.data());
  EXPECT_EQ(out.values()[0], 7);
}

// All threads of a block write parts; thread 0 publishes them, and all threads of the last block read them.
__global__ void sum_of_last_block(int* out, int* parts, unsigned* finished) {
  __shared__ bool last;
  parts[blockIdx.x * kThreads + threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(finished, 1U) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) {
    return;
  }
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    sum += parts[block * kThreads + kThreads - 1 - threadIdx.x];
  }
  parts[kThreads - 1 - threadIdx.x] = sum;
  if (threadIdx.x == 0) {
    *finished = 0;  // for the next launch
    *out = sum;
  }
}
TEST(Races, FencesAndAnAtomicOrderBlocks) {
  const Array<int> out(1);
  const Array<int> parts(9 * kThreads);
  const Array<unsigned> finished(std::vector<unsigned>{0});
  for (int launches = 0; launches < 2; ++launches) {
    run_kernel(true, 9, kThreads, sum_of_last_block, out.data(), parts.data(), finished.data());
    EXPECT_EQ(out.values()[0], 9);
  }
}

// Block 1 waits for block 0 while both run: on a GPU as here they do so at once.
__global__ void wait_for_the_other(int* value, int* flag, int* out) {
  if (blockIdx.x == 0) {
    *value = 42;
    __threadfence();
    *static_cast<volatile int*>(flag) = 1;
    return;
  }
  while (*static_cast<volatile int*>(flag) == 0) {
  }
  __threadfence();
  *out = *value;
}
TEST(Races, BlocksRunInterleaved) {
  const Array<int> value(1);
  const Array<int> out(1);
  const Array<int> flag(std::vector<int>{0});
  run_kernel(true, 2, 1, wait_for_the_other, value.data(), flag.data(), out.data());
  EXPECT_EQ(out.values()[0], 42);
}

__global__ void count(unsigned* counts, unsigned* maximum) {
  __shared__ unsigned local[2];
  if (threadIdx.x < 2) {
    local[threadIdx.x] = 0;
  }
  __syncthreads();
  atomicAdd(&local[threadIdx.x % 2], 1U);
  __syncthreads();
  if (threadIdx.x < 2) {
    atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
  }
  atomicMax(maximum, blockIdx.x);
}
TEST(Races, AtomicAccessesMayMeet) {
  const Array<unsigned> counts(std::vector<unsigned>{0, 0});
  const Array<unsigned> maximum(std::vector<unsigned>{0});
  run_kernel(true, 10, kThreads, count, counts.data(), maximum.data());
  EXPECT_EQ(counts.values(), (std::vector<unsigned>{320, 320}));
  EXPECT_EQ(maximum.values()[0], 9U);
}

// Two warps exchange through shared memory without a barrier.
__global__ void release_within_block(int* out) {
  __shared__ int value;
  __shared__ int flag;
  if (threadIdx.x == 0) {
    flag = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    value = 5;
    __threadfence_block();
    atomicExch(&flag, 1);
  } else if (threadIdx.x == 32) {
    while (atomicAdd(&flag, 0) == 0) {
      __nanosleep(1);
    }
    __threadfence_block();
    *out = value;
  }
}
TEST(Races, FencesOfTheBlockOrderItsThreads) {
  const Array<int> out(1);
  run_kernel(true, 1, kThreads, release_within_block, out.data());
  EXPECT_EQ(out.values()[0], 5);
}

// Neighbours in one word, and the same memory of different blocks and launches.
__global__ void own_bytes(unsigned char* bytes) {
  __shared__ unsigned char shared[kThreads];
  shared[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
  bytes[blockIdx.x * kThreads + threadIdx.x] = shared[threadIdx.x];
}
TEST(Races, OwnBytesAreNoRace) {
  const Array<unsigned char> bytes(8 * kThreads);
  for (int launches = 0; launches < 3; ++launches) {
    run_kernel(true, 8, kThreads, own_bytes, bytes.data());
  }
  EXPECT_EQ(bytes.values()[70], 6);
}

__global__ void fail_in_one_block(int* out) {
  for (unsigned i = 0; i < 1000; ++i) {
    out[blockIdx.x] = static_cast<int>(i);
    if (i == 500 && blockIdx.x == 2) {
      __trap();
    }
  }
}
TEST(Races, FailureEndsAllBlocks) {
  {
    const Array<int> out(8);
    const Stream stream;
    emulated_gpu::find_races(true);
    EXPECT_CUDA(launch(stream, 8, 1, 0, fail_in_one_block, out.data()));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    emulated_gpu::find_races(false);
    emulated_gpu::reset();
  }
  const Array<int> out(3 * kThreads);
  run_kernel(true, 1, kThreads, reverse, out.data(), 3);
}

}  // namespace
