#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda.h>
#include <tandem/core/cuda/gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/kernels/launch.h>

// Helpers shared by tests of GPU kernels.

#define TANDEM_NEEDS_GPU() \
  if (tandem::cuda::device_count() == 0) GTEST_SKIP() << "no GPU"

namespace tandem::test {

/// The calling thread's context of the first GPU.
inline kernels::Context& gpu() { return kernels::context_for(Device("cuda:0")); }

/// A copy of values in the memory of the first GPU, starting `offset` elements after an aligned address.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values, std::size_t offset = 0) : count_(values.size()), offset_(offset) {
    const cuda::GpuScope scope(0);
    cuda::require(cudaMalloc(&memory_, (count_ + offset_ + 1) * sizeof(T)), "cudaMalloc");
    if (count_ > 0) {
      cuda::require(cudaMemcpyAsync(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, stream()),
                    "cudaMemcpyAsync");
      cuda::current_stream().synchronize();
    }
  }
  ~DeviceArray() {
    const cuda::GpuScope scope(0);
    cudaFree(memory_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const noexcept { return static_cast<T*>(memory_) + offset_; }
  std::vector<T> download() const {
    const cuda::GpuScope scope(0);
    std::vector<T> values(count_);
    if (count_ > 0) {
      cuda::require(cudaMemcpyAsync(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost, stream()),
                    "cudaMemcpyAsync");
      cuda::current_stream().synchronize();
    }
    return values;
  }

 private:
  static CUstream_st* stream() { return cuda::current_handle(cuda::gpu(0)); }

  void* memory_ = nullptr;
  std::size_t count_;
  std::size_t offset_;
};

}  // namespace tandem::test
