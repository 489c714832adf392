#pragma once

#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/step_state.h>

// Internal: how a kernel of a GPU gets the scalars that change from step to step.

namespace tandem::inline v0::kernels {

/// By value for a step that is launched once; a captured one reads them from the GPU's memory, where they move on.
struct StepArgument {
  StepState value;
  const StepState* device;

  __device__ StepState get() const { return device != nullptr ? *device : value; }
};

/// `state` is host memory; null stands for one that never moves.
inline StepArgument step_argument(const Queue&, const StepState* state) {
  return {.value = state != nullptr ? *state : StepState{}, .device = nullptr};
}

}  // namespace tandem::inline v0::kernels
