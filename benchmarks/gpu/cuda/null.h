#pragma once

#include <cuda_runtime.h>

namespace bench::gpu {

/// A kernel that does nothing: what a launch itself costs.
cudaError_t launch_null(cudaStream_t stream);

}  // namespace bench::gpu
