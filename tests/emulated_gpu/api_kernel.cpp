#include <algorithm>

#include "device_limits.h"
#include "runtime.h"

// Functions that describe kernels.

using namespace emulated_gpu::detail::limits;  // NOLINT(google-build-using-namespace)
using emulated_gpu::detail::call;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Runtime;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call([&](Runtime& runtime, Lock&) {
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > kSharedOptIn) {
          return cudaErrorInvalidValue;
        }
        runtime.max_dynamic_shared[kernel] = value;
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
      default: return cudaErrorInvalidValue;
    }
  });
}

// The compiler reports nothing about kernels, so registers and static shared memory are guesses.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call([&](Runtime& runtime, Lock&) {
    if (attributes == nullptr || kernel == nullptr) {
      return attributes == nullptr ? cudaErrorInvalidValue : cudaErrorInvalidDeviceFunction;
    }
    *attributes = cudaFuncAttributes{};
    attributes->maxThreadsPerBlock = kThreads;
    attributes->numRegs = 32;
    attributes->ptxVersion = 90;
    attributes->binaryVersion = 90;
    const auto asked = runtime.max_dynamic_shared.find(kernel);
    attributes->maxDynamicSharedSizeBytes = asked == runtime.max_dynamic_shared.end() ? kShared : asked->second;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
  return call([&](Runtime&, Lock&) {
    if (blocks == nullptr || kernel == nullptr || threads <= 0) {
      return cudaErrorInvalidValue;
    }
    const std::size_t by_shared = kSharedPerMultiprocessor / (shared + kSharedReserved);
    const int by_threads = threads > kThreads ? 0 : kThreadsPerMultiprocessor / ((threads + 31) / 32 * 32);
    *blocks = std::min({kBlocksPerMultiprocessor, by_threads, static_cast<int>(by_shared)});
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel, int threads,
                                                                   size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
