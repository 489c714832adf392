#include <cassert>

#include "test_support.h"

// Tests of wrong use, and of kernels that fail.

namespace {

__global__ void leave_early() {
  if (threadIdx.x != 5) {
    __syncthreads();
  }
}
__global__ void two_barriers() {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void wrong_mask() { __syncwarp(0xFFFFFFFFU ^ (1U << threadIdx.x)); }
__global__ void lanes_that_are_not_there() { __shfl_xor_sync(0xFFFFFFFFU, 1, 1); }
__global__ void lane_that_left() {
  if (threadIdx.x != 3) {
    __syncwarp();
  }
}
__global__ void circle() {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}
__global__ void recurse(int depth) {
  volatile char frame[1000];
  frame[0] = static_cast<char>(depth);
  if (frame[0] == static_cast<char>(depth)) {  // always true
    recurse(depth + 1);
  }
  frame[1] = frame[0];
}
__global__ void follow(int* somewhere) { *somewhere = 1; }

template <class... P, class... A>
void run(unsigned threads, void (*kernel)(P...), A... arguments) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  launch(stream, 1, threads, 0, kernel, arguments...);
  cudaStreamSynchronize(stream);
}

TEST(WrongUseDeathTest, IsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run(32, leave_early), "kernel .*leave_early.*barrier divergence");
  EXPECT_DEATH(run(32, two_barriers), "barrier divergence: this thread is in __syncthreads at .*misuse_test.cu:");
  EXPECT_DEATH(run(32, wrong_mask), "the calling lane is not in the mask");
  EXPECT_DEATH(run(16, lanes_that_are_not_there), "names lanes that do not exist: this warp has 16");
  EXPECT_DEATH(run(32, lane_that_left), "thread .3,0,0.*left the kernel");
  EXPECT_DEATH(run(32, circle), "deadlock: 32 of 32 threads wait.*\n.*waits in __sync");
}

TEST(WrongUseDeathTest, OfMemoryIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Array<int> array(1);
  EXPECT_DEATH(run(1, recurse, 0), "its stack is full|stack-overflow");
  EXPECT_DEATH(*static_cast<volatile int*>(array.data()) = 1, "host code touched memory of GPU 0, byte 0");
  const auto write_past_the_end = [] {
    const Array<int> one(1);
    run(1, follow, one.data() + 1);
  };
  EXPECT_DEATH(write_past_the_end(), "wrote 0 bytes past the end of 4 bytes of memory of GPU 0|use-after-poison");
  int* other = nullptr;
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA(cudaMalloc(&other, 4));
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_DEATH(run(1, follow, other), "kernel .*follow.* touched memory of GPU 1, byte 0 .* no access");
  EXPECT_CUDA(cudaFree(other));
}

__global__ void fail(int how) {
  __syncthreads();
  if (threadIdx.x == 7 && how == 0) {
    __trap();
  }
  assert(threadIdx.x != 7);
  __syncthreads();
}

TEST(Failure, StaysUntilReset) {
  for (const int how : {0, 1}) {
    const cudaError_t expected = how == 0 ? cudaErrorLaunchFailure : cudaErrorAssert;
    {
      const Stream stream;
      EXPECT_CUDA(launch(stream, 1, 64, 0, fail, how));
      EXPECT_EQ(cudaStreamSynchronize(stream), expected);
      EXPECT_EQ(cudaGetLastError(), expected);
      EXPECT_EQ(cudaGetLastError(), expected);
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 4), expected);
      emulated_gpu::reset();
    }
    EXPECT_CUDA(cudaDeviceSynchronize());
  }
}

__global__ void spared(int* value) { *value = 1; }
__global__ void doomed(int* value) { *value = 2; }

TEST(Failure, CanBePlanned) {
  const Array<int> value(1);
  const Stream stream;
  emulated_gpu::fail_next(cudaErrorIllegalAddress, "doomed");
  EXPECT_CUDA(launch(stream, 1, 1, 0, spared, value.data()));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(launch(stream, 1, 1, 0, doomed, value.data()));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  emulated_gpu::reset();
  EXPECT_CUDA(cudaDeviceSynchronize());
}

}  // namespace
