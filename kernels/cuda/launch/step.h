#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/step_state.h>

// Access of a GPU kernel to the scalars that change from step to step.

namespace tandem::inline v0::kernels {

class Queue;

/// The places of a captured step's states in its GPU's memory, during the capture. Each parameter group or generator
/// needs one place. A state that the host changes within the step has a place for each of its values. kMost states are
/// 9 KiB of a kernel's arguments, which CUDA 12.1 and newer allow.
struct StepSlots {
  static constexpr std::size_t kMost = 128;
  struct Slot {
    const StepState* host;
    std::size_t works;  // number of the step's host works done before
  };
  StepState* device = nullptr;  // [kMost]
  std::vector<Slot> slots{};
  std::size_t works = 0;
  std::optional<cuda::Stream> stream{};  // the stream that the step will run on; scratch memory is in its order

  /// Returns the place of the present value of `host`. Throws CaptureError beyond kMost.
  const StepState* place(const StepState* host);
};

/// `state` is host memory; null stands for a state that never changes.
StepArgument step_argument(const Queue& queue, const StepState* state);

/// Writes device[i] = values[i] before the stream's next launch. One kernel takes the states as arguments: room for 1,
/// 8, 32 or kMost of them, as few as suffice (a state is 72 bytes, and all of the room travels with each launch). There
/// may be at most kMost.
void write_states(const Queue& queue, StepState* device, std::span<const StepState> values);

}  // namespace tandem::inline v0::kernels
