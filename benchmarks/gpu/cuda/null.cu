#include "gpu/cuda/null.h"

namespace bench::gpu {

namespace {

__global__ void null_kernel() {}

}  // namespace

cudaError_t launch_null(cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, null_kernel);
}

}  // namespace bench::gpu
