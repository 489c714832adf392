#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/cuda/step.h>

namespace tandem::inline v0::kernels {

namespace {

__global__ void write_states_kernel(StepState* device, StepValues values) {
  const auto i = static_cast<std::int64_t>(threadIdx.x);
  if (i < values.count) {
    device[i] = values.values[i];
  }
}

}  // namespace

void write_states(const Queue& queue, StepState* device, const StepValues& values) {
  queue.launch("write_states", 1, static_cast<unsigned int>(StepSlots::kMost), 0, write_states_kernel, device, values);
}

}  // namespace tandem::inline v0::kernels
