#pragma once

#include <cstdint>

namespace tandem::inline v0::kernels {

/// What is known of an optimiser's gradients on their device alone, so that no step waits for it. In that device's
/// memory.
struct GradScale {
  double inverse;    // what they are multiplied with
  double found_inf;  // not 0: one of them is not finite, and the update is left out
  double skipped;    // updates left out so far, which StepState::step counts
};

/// The scalars that change from step to step. Kernels read them from here, in eager mode too, so that a captured step
/// can be replayed with the same arguments while these move on.
struct StepState {
  double learning_rate = 0;
  std::int64_t step = 0;            // optimiser steps, the current one included
  std::uint64_t random_offset = 0;  // added to the offset of every draw
  double momentum = 0;              // of an optimiser that has one; of Adam the first beta
  double weight_decay = 0;
  const GradScale* scale = nullptr;  // null: gradients are what they are, and no step was left out
};

}  // namespace tandem::inline v0::kernels
