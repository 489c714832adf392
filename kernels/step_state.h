#pragma once

#include <cstdint>

namespace tandem::inline v0::kernels {

/// The scalars that change from step to step. Kernels read them from here, in eager mode too, so that a captured step
/// can be replayed with the same arguments while these move on.
struct StepState {
  double learning_rate = 0;
  std::int64_t step = 0;            // optimiser steps taken, the current one included
  std::uint64_t random_offset = 0;  // added to the offset of every draw
  double momentum = 0;              // of an optimiser that has one; of Adam the first beta
  double weight_decay = 0;
};

}  // namespace tandem::inline v0::kernels
