#pragma once

#include <cuda_runtime.h>

// Kernels whose blocks leave parts of a result, which the last block to end joins. A second kernel for that would cost
// a launch.

namespace tandem::inline v0::kernels {

/// Called by all threads of a block, once, after they have written their parts to global memory. Returns true in the
/// last of `blocks` blocks that call with this ticket: that block sees the parts of all. The ticket (Queue::tickets())
/// is 0 before and after the kernel.
__device__ __forceinline__ bool is_last_block(unsigned int* ticket, unsigned int blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // the parts of this block come before its ticket
    last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();  // the parts of the others come after their tickets
  }
  __syncthreads();
  return last;
}

}  // namespace tandem::inline v0::kernels
