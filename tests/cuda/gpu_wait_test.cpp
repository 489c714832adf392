#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda.h>

#include "cuda/gpu_test.h"

// Tests of a GPU that never finishes: every wait ends with an error after a while. The limit is read once, so each test
// needs a process of its own.

namespace tandem {
namespace {

using test::filled;
using test::message_of;

void make_stuck(const cuda::Stream& stream) {
  cudaLaunchHostFunc(stream.handle(), [](void*) { std::this_thread::sleep_for(std::chrono::hours(1)); }, nullptr);
}

// Prints the error that `wait` throws in a process whose GPU is stuck on its default stream.
[[noreturn]] void print_what_a_wait_throws(const char* limit, const std::function<void(const Tensor&)>& wait) {
  setenv("TANDEM_GPU_TIMEOUT", limit, 1);
  const Tensor x = filled(100000, 1) + 1;
  make_stuck(cuda::default_stream());
  try {
    wait(x);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(0);
}

class CudaWaitDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_NEEDS_GPUS(1);
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  static void expect(const std::function<void(const Tensor&)>& wait, const std::string& call, const std::string& what) {
    EXPECT_EXIT(print_what_a_wait_throws("0.2", wait), ::testing::ExitedWithCode(0),
                call + ": cuda:0 is not done after 0.2 s, on its " + what +
                    " 0x[0-9a-f]+; the last launches of this thread: .*fill.*pointwise.*TANDEM_GPU_TIMEOUT=<seconds>");
  }
};

TEST_F(CudaWaitDeathTest, AStreamIsGivenUp) {
  expect([](const Tensor&) { cuda::current_stream().synchronize(); }, "cuda::Stream::synchronize", "stream");
}

TEST_F(CudaWaitDeathTest, AnEventIsGivenUp) {
  expect([](const Tensor&) { cuda::current_stream().record_event().synchronize(); }, "cuda::Event::synchronize",
         "event");
}

TEST_F(CudaWaitDeathTest, AGpuIsGivenUp) {
  expect([](const Tensor&) { cuda::synchronize(); }, "cuda::synchronize", "stream");
}

TEST_F(CudaWaitDeathTest, CopiesToTheHostAreGivenUp) {
  expect([](const Tensor& x) { x.narrow(0, 5, 1).item(); }, "transfer", "stream");
  expect([](const Tensor& x) { x.to("cpu"); }, "transfer", "stream");
}

TEST_F(CudaWaitDeathTest, LongCopiesToTheGpuAreGivenUp) {
  expect([](const Tensor&) { ones({100000}).to("cuda:0"); }, "transfer", "stream");
}

TEST_F(CudaWaitDeathTest, EmptyingTheCacheIsGivenUp) {
  expect([](const Tensor&) { cuda::empty_cache(); }, "cuda::empty_cache", "stream");
}

TEST_F(CudaWaitDeathTest, WhatIsLetGoInVainIsNotGivenOutAgain) {
  expect(
      [](const Tensor& x) {
        {
          const Tensor cached = x.clone();
        }
        try {
          cuda::empty_cache();
        } catch (const DeviceError& error) {
          check<Error>(cuda::memory_stats().cached == 0, "{} bytes are in the cache", cuda::memory_stats().cached);
          throw;
        }
      },
      "cuda::empty_cache", "stream");
}

TEST_F(CudaWaitDeathTest, TheLimitIsChecked) {
  for (const char* limit : {"-1", "soon", "", "1s", "inf"}) {
    EXPECT_EXIT(print_what_a_wait_throws(limit, [](const Tensor&) { cuda::synchronize(); }),
                ::testing::ExitedWithCode(0),
                "TANDEM_GPU_TIMEOUT='" + std::string(limit) + "': expected a number of seconds, 0 for no limit");
  }
}

// The GPU is busy for longer than a wait spins, but for less than the limit.
TEST(CudaWait, GoesOnWhenTheGpuDoes) {
  TANDEM_NEEDS_GPUS(1);
  const cuda::Stream stream;
  cudaLaunchHostFunc(
      stream.handle(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }, nullptr);
  EXPECT_FALSE(stream.query());
  EXPECT_NO_THROW(cuda::synchronize());
  EXPECT_TRUE(stream.query());
}

// Several threads share the default stream.
TEST(CudaWait, EndsWhileOthersGoOnWithTheStream) {
  TANDEM_NEEDS_GPUS(1);
  const Tensor sum = filled(64, 1).sum();
  std::atomic<bool> done = false;
  std::atomic<int> rounds = 0;
  std::thread other([&] {
    Tensor own = filled(64, 1);
    const auto begin = std::chrono::steady_clock::now();
    while (!done && std::chrono::steady_clock::now() - begin < std::chrono::seconds(10)) {
      own.mul_(1);
      ++rounds;
    }
    EXPECT_TRUE(done);
  });
  while (rounds < 100) {
    std::this_thread::yield();
  }
  EXPECT_EQ(sum.item(), 64);
  done = true;
  other.join();
}

}  // namespace
}  // namespace tandem
