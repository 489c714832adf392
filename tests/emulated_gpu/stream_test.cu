#include <atomic>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "test_support.h"

// Tests of streams, events, threads and processes.

namespace {

__global__ void increment(int* value) { *value += 1; }
__global__ void multiply(int* value, int factor) { *value *= factor; }

TEST(Stream, RunsWhenSomebodyWaits) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(emulated_gpu::pending_tasks(), 1U);
  EXPECT_EQ(value.values()[0], 1);  // a blocking copy does not wait for non-blocking streams
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Stream, OfTheOldKindIsWaitedForByBlockingCopies) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream(cudaStreamDefault);
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Stream, AQueryRunsOneTask) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream;
  EXPECT_CUDA(cudaStreamQuery(stream));
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(value.values()[0], 2);
  EXPECT_CUDA(cudaStreamQuery(stream));
  EXPECT_EQ(value.values()[0], 3);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
}

TEST(Stream, RunsWhenManyTasksWait) {
  const Array<int> value(std::vector<int>{0});
  const Stream stream;
  for (int i = 0; i < 1100; ++i) {
    EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  }
  EXPECT_EQ(emulated_gpu::pending_tasks(), 1024U);
  EXPECT_EQ(value.values()[0], 1100 - 1024);
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(value.values()[0], 1100);
}

TEST(Stream, MustBeOfTheCurrentDeviceForKernels) {
  const Stream stream;
  int* none = nullptr;
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(launch(stream, 1, 1, 0, increment, none), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(&none)), cudaErrorInvalidResourceHandle);
}

TEST(Event, OrdersStreams) {
  const Array<int> value(std::vector<int>{1});
  const Stream first;
  const Stream second;
  const Event event;
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(launch(first, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(launch(first, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(launch(second, 1, 1, 0, multiply, value.data(), 10));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(value.values()[0], 20);
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaStreamSynchronize(first));
  EXPECT_EQ(value.values()[0], 21);
}

TEST(Event, WithoutAWaitTheOrderIsNotKept) {
  const Array<int> value(std::vector<int>{1});
  const Stream first;
  const Stream second;
  EXPECT_CUDA(launch(first, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(launch(second, 1, 1, 0, multiply, value.data(), 10));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(value.values()[0], 10);
}

TEST(Event, AWaitIsForTheRecordBeforeIt) {
  const Array<int> value(std::vector<int>{1});
  const Stream first;
  const Stream second;
  const Event event;
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event, 0));
  EXPECT_CUDA(launch(first, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(value.values()[0], 1);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Event, MeasuresTime) {
  const Stream stream;
  const Event start(cudaEventDefault);
  const Event end(cudaEventDefault);
  const Event without;
  float time = -1;
  EXPECT_CUDA(cudaEventRecord(start, stream));
  EXPECT_CUDA(cudaEventRecord(end, stream));
  EXPECT_CUDA(cudaEventRecord(without, stream));
  EXPECT_EQ(cudaEventElapsedTime(&time, start, end), cudaErrorNotReady);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaEventElapsedTime(&time, start, end));
  EXPECT_GE(time, 0.0F);
  EXPECT_EQ(cudaEventElapsedTime(&time, start, without), cudaErrorInvalidResourceHandle);
}

TEST(HostFunction, RunsInOrderAndMayNotCallCuda) {
  const Stream stream;
  cudaError_t inside = cudaSuccess;
  const auto call = [](void* result) { *static_cast<cudaError_t*>(result) = cudaDeviceSynchronize(); };
  EXPECT_CUDA(cudaLaunchHostFunc(stream, call, &inside));
  EXPECT_EQ(inside, cudaSuccess);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(inside, cudaErrorNotPermitted);
}

TEST(HostFunction, MayTakeForEver) {
  const Stream stream;
  const Stream other;
  const Array<int> value(std::vector<int>{0});
  const Event event;
  std::atomic<bool> go_on{false};
  const auto call = [](void* flag) {
    while (!static_cast<std::atomic<bool>*>(flag)->load())
      std::this_thread::yield();
  };
  EXPECT_CUDA(cudaLaunchHostFunc(stream, call, &go_on));
  EXPECT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(launch(other, 1, 1, 0, increment, value.data()));
  EXPECT_CUDA(cudaStreamSynchronize(other));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  }
  go_on = true;
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Process, AForkedChildCannotUseTheGpu) {
  const Stream stream;
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const bool right = cudaGetDeviceCount(&count) == cudaErrorInitializationError &&
                       cudaStreamSynchronize(stream) == cudaErrorInitializationError;
    std::_Exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(Library, QueuesItsTasks) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream;
  int* data = value.data();
  EXPECT_CUDA(emulated_gpu::enqueue(stream, "library", [data] { *data = 9; }));
  EXPECT_EQ(value.values()[0], 1);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 9);
}

TEST(Threads, RunKernelsWhileTheyEnd) {
  struct Counter {
    Array<int> value{std::vector<int>{0}};
    Stream stream;
    void add_one() {
      EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
      EXPECT_CUDA(cudaStreamSynchronize(stream));
    }
    ~Counter() {
      add_one();
      EXPECT_EQ(value.values()[0], 2);
    }
  };
  std::thread([] {
    thread_local Counter counter;  // destroyed after the objects of the thread's first kernel
    counter.add_one();
  }).join();
}

TEST(Threads, ShareTheDevices) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      EXPECT_CUDA(cudaSetDevice(i % 2));
      const Stream stream;
      const Stream other;
      const Event event;
      const Array<int> value(std::vector<int>{0});
      for (int round = 0; round < 50; ++round) {
        EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
        EXPECT_CUDA(cudaEventRecord(event, stream));
        EXPECT_CUDA(cudaStreamWaitEvent(other, event, 0));
        EXPECT_CUDA(launch(other, 1, 1, 0, increment, value.data()));
        EXPECT_CUDA(cudaStreamSynchronize(other));
      }
      EXPECT_EQ(value.values()[0], 100);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
