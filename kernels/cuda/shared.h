#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cuda/queue.h>

// Internal: shared memory whose size a launch decides.

namespace tandem::inline v0::kernels {

/// The block's, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return static_cast<T*>(emulated_gpu::dynamic_shared());
#endif
}

/// Bytes that a block may ask for, beside up to 4 KiB of static ones.
inline std::size_t most_dynamic_shared(const Queue& queue) {
  int bytes = 0;
  cuda::require(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, queue.gpu().index),
                "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes) - 4096;
}

/// To be called before a launch of kKernel with `bytes` of it: above 48 KiB a kernel needs leave.
template <auto kKernel>
void allow_dynamic_shared(const Queue& queue, std::size_t bytes) {
  static std::atomic<std::uint64_t> allowed{0};  // bit i: GPU i
  const std::uint64_t bit = std::uint64_t{1} << (queue.gpu().index % 64);
  if (bytes <= 44 * 1024 || (allowed.load(std::memory_order_relaxed) & bit) != 0) {
    return;
  }
  cuda::require(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(most_dynamic_shared(queue))),
                "cudaFuncSetAttribute");
  allowed.fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace tandem::inline v0::kernels
