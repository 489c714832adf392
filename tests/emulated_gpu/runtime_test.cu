#include <thread>

#include "test_support.h"

namespace {

__global__ void increment(int* value) { *value += 1; }
__global__ void multiply(int* value, int factor) { *value *= factor; }
__global__ void copy_value(int* to, const int* from) { *to = *from; }

class Pinned {
 public:
  explicit Pinned(std::size_t count) { EXPECT_CUDA(cudaMallocHost(&data_, count * sizeof(int))); }
  ~Pinned() { EXPECT_CUDA(cudaFreeHost(data_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  int& operator[](std::size_t i) const { return data_[i]; }
  int* data() const { return data_; }

 private:
  int* data_ = nullptr;
};

TEST(Stream, RunsWhenSomebodyWaits) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream;
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(emulated_gpu::pending_tasks(), 1U);
  EXPECT_EQ(value.values()[0], 1);  // a blocking copy does not wait for streams of this kind
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Stream, OfTheOldKindIsWaitedForByBlockingCopies) {
  const Array<int> value(std::vector<int>{1});
  const Stream stream(cudaStreamDefault);
  EXPECT_CUDA(launch(stream, 1, 1, 0, increment, value.data()));
  EXPECT_EQ(value.values()[0], 2);
}

TEST(Stream, QueryRunsOneTask) {
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

TEST(Copy, PageableMemoryIsStaged) {
  const Array<int> value(1);
  const Stream stream;
  int host = 5;
  EXPECT_CUDA(cudaMemcpyAsync(value.data(), &host, sizeof(int), cudaMemcpyHostToDevice, stream));
  host = 6;
  EXPECT_CUDA(cudaMemcpyAsync(&host, value.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(host, 5);  // the way back waits
}

TEST(Copy, PinnedMemoryIsReadLater) {
  const Array<int> value(1);
  const Stream stream;
  const Pinned host(2);
  host[0] = 5;
  host[1] = 0;
  EXPECT_CUDA(cudaMemcpyAsync(value.data(), host.data(), sizeof(int), cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(cudaMemcpyAsync(&host[1], value.data(), sizeof(int), cudaMemcpyDefault, stream));
  EXPECT_EQ(host[1], 0);
  host[0] = 6;
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(host[1], 6);
}

TEST(Copy, RegisteredMemoryIsPinned) {
  const Array<int> value(1);
  const Stream stream;
  std::vector<int> host{5};
  EXPECT_CUDA(cudaHostRegister(host.data(), sizeof(int), cudaHostRegisterDefault));
  EXPECT_EQ(cudaHostRegister(host.data(), sizeof(int), 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_CUDA(cudaMemcpyAsync(value.data(), host.data(), sizeof(int), cudaMemcpyHostToDevice, stream));
  host[0] = 6;
  EXPECT_CUDA(cudaHostUnregister(host.data()));
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(value.values()[0], 6);
}

TEST(Copy, ChecksDirectionsAndRanges) {
  const Array<int> value(2);
  const Stream stream;
  int host[4]{};
  EXPECT_EQ(cudaMemcpyAsync(host, value.data(), 4, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(value.data(), host, 9, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(value.data() + 1, host, 5, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 4), cudaErrorInvalidValue);

  EXPECT_CUDA(cudaMemset(value.data(), 1, 8));
  EXPECT_EQ(value.values()[1], 0x01010101);
}

TEST(Copy, OfRows) {
  const Array<int> values(std::vector<int>{1, 2, 3, 4, 5, 6});
  const Stream stream;
  std::vector<int> host(4);
  EXPECT_CUDA(cudaMemcpy2DAsync(host.data(), 8, values.data() + 1, 12, 8, 2, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(host, (std::vector<int>{2, 3, 5, 6}));
  EXPECT_EQ(cudaMemcpy2DAsync(host.data(), 4, values.data(), 12, 8, 2, cudaMemcpyDeviceToHost, stream),
            cudaErrorInvalidPitchValue);
}

TEST(Memory, IsGarbageAndRunsOut) {
  const Array<unsigned char> bytes(3);
  EXPECT_EQ(bytes.values(), std::vector<unsigned char>(3, 0xFB));
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_LT(free, total);
  void* memory = &free;
  EXPECT_EQ(cudaMalloc(&memory, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaFree(&free), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(bytes.data() + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  cudaPointerAttributes attributes{};
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, bytes.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_CUDA(cudaPointerGetAttributes(&attributes, &free));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST(Memory, InStreamOrder) {
  const Stream stream;
  const std::size_t before = emulated_gpu::allocated_bytes(0);
  int* first = nullptr;
  int* second = nullptr;
  EXPECT_CUDA(cudaMallocAsync(&first, 4, stream));
  EXPECT_CUDA(cudaMemsetAsync(first, 0, 4, stream));
  EXPECT_CUDA(cudaFreeAsync(first, stream));
  EXPECT_EQ(cudaFreeAsync(first, stream), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMallocAsync(&second, 4, stream));
  EXPECT_NE(first, second);  // nothing has run
  EXPECT_CUDA(cudaFreeAsync(second, stream));
  EXPECT_EQ(emulated_gpu::allocated_bytes(0), before + 8);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(emulated_gpu::allocated_bytes(0), before);
}

TEST(Memory, QueuedFreesRunBeforeMemoryRunsOut) {
  const Stream stream;
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  const std::size_t size = free / 4 * 3;
  for (int i = 0; i < 2; ++i) {
    void* memory = nullptr;
    EXPECT_CUDA(cudaMallocAsync(&memory, size, stream));
    EXPECT_CUDA(cudaFreeAsync(memory, stream));
  }
}

TEST(Memory, PoolsCount) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 1};
  cudaMemPool_t pool = nullptr;
  EXPECT_CUDA(cudaMemPoolCreate(&pool, &properties));
  const Stream stream;
  void* memory = nullptr;
  EXPECT_CUDA(cudaMallocFromPoolAsync(&memory, 100, pool, stream));
  std::uint64_t used = 0;
  EXPECT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, 100U);
  EXPECT_EQ(emulated_gpu::allocated_bytes(1), 100U);
  EXPECT_CUDA(cudaFreeAsync(memory, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaMemPoolDestroy(pool));
}

TEST(Devices, AccessEachOther) {
  int possible = 0;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 1));
  EXPECT_EQ(possible, 1);
  const Array<int> here(std::vector<int>{0});
  const Stream stream;
  EXPECT_CUDA(cudaSetDevice(1));
  {
    const Array<int> there(std::vector<int>{7});
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaMemcpyPeerAsync(here.data(), 0, there.data(), 1, 4, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(here.values()[0], 7);
    EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_CUDA(launch(stream, 1, 1, 0, copy_value, there.data(), here.data()));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  }
}

TEST(Devices, HaveProperties) {
  cudaDeviceProp properties{};
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 0));
  EXPECT_STREQ(properties.name, "Emulated GPU");
  int major = 0;
  EXPECT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT_EQ(major, 9);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
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
