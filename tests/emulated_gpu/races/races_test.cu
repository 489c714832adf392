#include "kernels_test.h"

// Kernels with races, each of which the oracle must report. Without it they run through.

namespace {

template <class... Parameters, class... Arguments>
void expect_race(const char* report, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  run_kernel(false, grid, block, kernel, arguments...);
  EXPECT_DEATH(run_kernel(true, grid, block, kernel, arguments...), report);
}

constexpr unsigned kThreads = 64;
constexpr const char* kNoBarrier = "__syncthreads.. between the two accesses is missing";
constexpr const char* kNoWarpBarrier = "__syncwarp.. of both lanes, or __syncthreads.., between the two accesses";
constexpr const char* kNoOrderOfBlocks = "nothing orders two blocks but __threadfence";
constexpr const char* kNotAtomic = "make both accesses atomic";

__global__ void reverse_without_barrier(int* out) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}
TEST(RaceDeathTest, MissingBarrier) {
  const Array<int> out(kThreads);
  expect_race(kNoBarrier, 1, kThreads, reverse_without_barrier, out.data());
}

TEST(RaceDeathTest, ReportNamesBothThreadsAndLines) {
  const Array<int> out(kThreads);
  expect_race(
      "data race in kernel .*reverse_without_barrier.int.*, 4 bytes of shared memory:\n"
      "  a (read|write) of block .0,0,0., thread .[0-9]+,0,0.\n    at .*races_test.cu:2[0-9].*\n"
      "  after a (write|read) of block .0,0,0., thread .[0-9]+,0,0.\n    at .*races_test.cu:2[0-9]",
      1, kThreads, reverse_without_barrier, out.data());
}

__global__ void exchange_in_warp(int* out) {
  __shared__ int values[32];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
TEST(RaceDeathTest, MissingWarpBarrier) {
  const Array<int> out(32);
  expect_race(kNoWarpBarrier, 1, 32, exchange_in_warp, out.data());
}

__global__ void exchange_in_halves(int* out) {
  __shared__ int values[32];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp(threadIdx.x < 16 ? 0xFFFFU : 0xFFFF0000U);
  out[threadIdx.x] = values[threadIdx.x ^ 16];
}
TEST(RaceDeathTest, WarpBarrierOfOtherLanes) {
  const Array<int> out(32);
  expect_race(kNoWarpBarrier, 1, 32, exchange_in_halves, out.data());
}

__global__ void everybody_writes(int* out) {
  if (threadIdx.x == 0) {
    *out = static_cast<int>(blockIdx.x);
  }
}
TEST(RaceDeathTest, TwoBlocksOneCell) {
  const Array<int> out(1);
  expect_race(kNoOrderOfBlocks, 2, kThreads, everybody_writes, out.data());
}

// Each block leaves a part; the last one to finish adds them.
enum class Fences { kNone, kBefore, kAfter, kOfBlock };
__global__ void last_block_sums(int* out, int* parts, unsigned* finished, Fences fences) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = static_cast<int>(blockIdx.x);
    if (fences == Fences::kBefore) {
      __threadfence();
    }
    if (fences == Fences::kOfBlock) {
      __threadfence_block();
    }
    last = atomicAdd(finished, 1U) == gridDim.x - 1;
    if (fences == Fences::kAfter) {
      __threadfence();
    }
    if (fences == Fences::kOfBlock) {
      __threadfence_block();
    }
  }
  __syncthreads();
  if (last && threadIdx.x < gridDim.x) {
    atomicAdd(out, parts[threadIdx.x]);
  }
}
void expect_race_of_blocks(Fences fences) {
  const Array<int> out(1);
  const Array<int> parts(8);
  for (const bool expected : {false, true}) {
    const Array<unsigned> finished(std::vector<unsigned>{0});
    if (expected) {
      GTEST_FLAG_SET(death_test_style, "threadsafe");
      EXPECT_DEATH(run_kernel(true, 8, kThreads, last_block_sums, out.data(), parts.data(), finished.data(), fences),
                   kNoOrderOfBlocks);
    } else {
      run_kernel(false, 8, kThreads, last_block_sums, out.data(), parts.data(), finished.data(), fences);
    }
  }
}
TEST(RaceDeathTest, NoFencesOfLastBlock) { expect_race_of_blocks(Fences::kNone); }
TEST(RaceDeathTest, NoFenceBeforeTheAtomic) { expect_race_of_blocks(Fences::kAfter); }
TEST(RaceDeathTest, NoFenceAfterTheAtomic) { expect_race_of_blocks(Fences::kBefore); }
TEST(RaceDeathTest, FencesOfTheBlockOnly) { expect_race_of_blocks(Fences::kOfBlock); }

// The row's sum is read by all; the next row's overwrites it.
__global__ void rows_without_barrier_at_the_end(int* out, int rows) {
  __shared__ int sum;
  for (int row = 0; row < rows; ++row) {
    if (threadIdx.x == 0) {
      sum = row;
    }
    __syncthreads();
    out[row * static_cast<int>(kThreads) + static_cast<int>(threadIdx.x)] = sum;
  }
}
TEST(RaceDeathTest, SharedMemoryReusedForTheNextRow) {
  const Array<int> out(2 * kThreads);
  expect_race("shared memory:\n  a write (.*\n)*  after a read (.*\n)*.*between the two accesses is missing", 1,
              kThreads, rows_without_barrier_at_the_end, out.data(), 2);
}

// The barrier at the loop's head is met before the values are written.
__global__ void barrier_too_early(int* out, int steps) {
  auto* values = static_cast<int*>(emulated_gpu::dynamic_shared());
  for (int step = 0; step < steps; ++step) {
    __syncthreads();
    values[threadIdx.x] = step;
    out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
  }
}
TEST(RaceDeathTest, ReadBeforeTheBarrierAtTheHeadOfTheLoop) {
  const Array<int> out(kThreads);
  expect_race("of dynamic shared memory, byte [0-9]+:(.*\n)*.*__syncthreads..", 1, kThreads, barrier_too_early,
              out.data(), 2);
}

__global__ void warps_through_global_memory(int* values, int* out) {
  if (threadIdx.x < 32) {
    values[threadIdx.x] = 1;
  }
  __syncwarp();
  if (threadIdx.x >= 32) {
    out[threadIdx.x - 32] = values[threadIdx.x - 32];
  }
}
TEST(RaceDeathTest, WarpsThroughGlobalMemory) {
  const Array<int> values(32);
  const Array<int> out(32);
  expect_race(kNoBarrier, 1, 64, warps_through_global_memory, values.data(), out.data());
}

__global__ void count(int* counter) { ++*counter; }
TEST(RaceDeathTest, CounterThatIsNotAtomic) {
  const Array<int> counter(1);
  expect_race(kNoWarpBarrier, 1, 32, count, counter.data());
}

__global__ void count_and_read(int* counter, int* out) {
  atomicAdd(counter, 1);
  out[blockIdx.x] = *counter;
}
TEST(RaceDeathTest, AtomicAndPlainAccess) {
  const Array<int> counter(1);
  const Array<int> out(4);
  expect_race(kNotAtomic, 4, 1, count_and_read, counter.data(), out.data());
}

// The writer does all that it must; the reader sees the flag and lacks a fence.
__global__ void reader_without_fence(int* value, int* flag, int* out) {
  if (blockIdx.x == 0) {
    *value = 42;
    __threadfence();
    atomicExch(flag, 1);
  } else if (*static_cast<volatile int*>(flag) == 1) {
    *out = *value;
  }
}
TEST(RaceDeathTest, FlagReadWithoutAcquiring) {
  const Array<int> value(1);
  const Array<int> flag(1);
  const Array<int> out(64);
  expect_race(kNoOrderOfBlocks, 64, 1, reader_without_fence, value.data(), flag.data(), out.data());
}

__global__ void plain_flag(int* flag) {
  if (blockIdx.x == 0) {
    *flag = 1;
  } else {
    atomicMax(flag, 0);
  }
}
TEST(RaceDeathTest, FlagWrittenPlainly) {
  const Array<int> flag(1);
  expect_race(kNotAtomic, 2, 1, plain_flag, flag.data());
}

// A write of 16 bytes covers the byte that another thread writes.
struct alignas(16) Pack {
  unsigned char bytes[16];
};
__global__ void pack_and_byte(Pack* pack) {
  if (threadIdx.x == 0) {
    *pack = Pack{};
  } else {
    pack->bytes[13] = 1;
  }
}
TEST(RaceDeathTest, OneByteOfMany) {
  const Array<Pack> pack(1);
  expect_race("memory of GPU 0, byte [0-9]+ of an allocation of 16", 1, 2, pack_and_byte, pack.data());
}

}  // namespace
