#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/host_device.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/step_state.h>

// Internal: how a kernel of a GPU gets the scalars that change from step to step.

namespace tandem::inline v0::kernels {

class Queue;

/// By value for a step that is launched once; a captured one reads them from the GPU's memory, where they move on.
struct StepArgument {
  StepState value;
  const StepState* device;

  TANDEM_HD StepState get() const { return device != nullptr ? *device : value; }
};

/// Where the states of a captured step lie on its GPU, while it is captured. A state that the host changes within the
/// step has a place for each of its values. A parameter group or a generator needs one; kMost of them are 6 KiB of a
/// kernel's arguments, which CUDA 12.1 and newer allow.
struct StepSlots {
  static constexpr std::size_t kMost = 128;
  struct Slot {
    const StepState* host;
    std::size_t works;  // of the step's host work, what was done before
  };
  StepState* device = nullptr;  // [kMost]
  std::vector<Slot> slots{};
  std::size_t works = 0;
  std::optional<cuda::Stream> stream{};  // that the step will run on: scratch memory is in its order

  /// The place for `host` as it is now. Throws CaptureError beyond kMost.
  const StepState* place(const StepState* host);
};

/// `state` is host memory; null stands for one that never moves.
StepArgument step_argument(const Queue& queue, const StepState* state);

/// device[i] = values[i], before the next launch of the stream, by one kernel that has them as arguments: 1, 8, 32 or
/// kMost of them, as few as will do (a state is 48 bytes, and all of them travel with each launch). At most kMost.
void write_states(const Queue& queue, StepState* device, std::span<const StepState> values);

}  // namespace tandem::inline v0::kernels
