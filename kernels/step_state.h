#pragma once

#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0::kernels {

/// State of an optimiser's gradients that only their device knows, so that no step waits for it. It lies in that
/// device's memory.
struct GradScale {
  double inverse;    // factor of the gradients
  double found_inf;  // not 0 if a gradient is not finite; the update is then left out
  double skipped;    // updates left out so far; StepState::step counts them too
};

/// Scalars that change from step to step. Kernels read them from here, in eager mode too. A captured step can therefore
/// be replayed with the same arguments while these values move on.
struct StepState {
  double learning_rate = 0;
  std::int64_t step = 0;            // optimiser steps, the current one included
  std::uint64_t random_offset = 0;  // added to the offset of every draw
  double momentum = 0;              // for an optimiser with momentum; Adam's first beta
  double weight_decay = 0;
  // For Adam: both betas to the power of `powers_step`. If that is `step`, no thread of a GPU has to compute them.
  double first_power = 1;
  double second_power = 1;
  std::int64_t powers_step = 0;
  const GradScale* scale = nullptr;  // null: gradients are not scaled, and no step was left out
};

/// A StepState for a GPU kernel. A step that is launched once gets its state by value. A captured step reads it from
/// the GPU's memory, where the state is updated before each replay.
struct StepArgument {
  StepState value;
  const StepState* device;

  TANDEM_HD StepState get() const { return device != nullptr ? *device : value; }
};

}  // namespace tandem::inline v0::kernels
