#pragma once

#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "emulated_gpu.h"

// Macros and helpers of the emulated GPU's own tests.

#define EXPECT_CUDA(expression) EXPECT_EQ(expression, cudaSuccess)
#define ASSERT_CUDA(expression) ASSERT_EQ(expression, cudaSuccess)

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, flags)); }
  ~Stream() { EXPECT_CUDA(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) { EXPECT_CUDA(cudaEventCreateWithFlags(&event_, flags)); }
  ~Event() { EXPECT_CUDA(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device memory with initial values.
template <class T>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) { EXPECT_CUDA(cudaMalloc(&data_, size * sizeof(T))); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Array() { EXPECT_CUDA(cudaFree(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return data_; }
  // The present values. Does not run queued work.
  std::vector<T> values() const {
    std::vector<T> values(size_);
    EXPECT_CUDA(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

template <class... Parameters, class... Arguments>
cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}
