#pragma once

#include <cuda_runtime.h>

namespace bench::gpu {

/// Launches an empty kernel, to measure the cost of a launch.
cudaError_t launch_null(cudaStream_t stream);

}  // namespace bench::gpu
