#pragma once

#include <cuda_runtime.h>

#include <tandem/core/cuda/fault.h>

// Internal: how a kernel of a GPU leaves a note about a value that it cannot use, and goes on without it.

namespace tandem::inline v0::kernels {

/// `note` but for `claimed`, unless another one is there already: the first is kept until the host has thrown it. For
/// one thread of those that see the value.
__device__ inline void report(cuda::Fault* fault, const cuda::Fault& note) {
  if (atomicCAS(&fault->claimed, 0U, 1U) != 0) {
    return;
  }
  fault->kind = note.kind;
  fault->op = note.op;
  fault->position = note.position;
  fault->value = note.value;
  fault->number = note.number;
  fault->end = note.end;
  fault->ignored = note.ignored;
  __threadfence_system();
  *static_cast<volatile unsigned int*>(&fault->ready) = 1;
}

}  // namespace tandem::inline v0::kernels
