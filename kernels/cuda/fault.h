#pragma once

#include <cuda_runtime.h>

#include <tandem/core/cuda/fault.h>

// Internal: how a kernel of a GPU leaves a note about a value that it cannot use, and goes on without it.

namespace tandem::inline v0::kernels {

using core::BadValue;

/// Notes `found`, unless another note is there already: the first is kept until the host has thrown it. For one thread
/// of those that see the value.
__device__ inline void report(cuda::Fault* fault, const BadValue& found) {
  if (atomicCAS(&fault->claimed, 0U, 1U) != 0) {
    return;
  }
  fault->found = found;
  __threadfence_system();
  *static_cast<volatile unsigned int*>(&fault->ready) = 1;
}

}  // namespace tandem::inline v0::kernels
