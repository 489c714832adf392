#include "test_support.h"

// Tests of memory, copies, and devices that access each other.

namespace {

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

TEST(Copy, PageableMemoryIsReadAsLateAsItMayBe) {
  const Array<int> value(1);
  const Stream stream;
  int host = 5;
  EXPECT_CUDA(cudaMemcpyAsync(value.data(), &host, sizeof(int), cudaMemcpyHostToDevice, stream));
  host = 6;
  int back = 0;
  EXPECT_CUDA(cudaMemcpyAsync(&back, value.data(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(back, 6);
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

}  // namespace
