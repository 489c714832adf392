#include <tandem/kernels/cuda/launch/step.h>

#include <tandem/core/check.h>
#include <tandem/kernels/cuda/launch/queue.h>

namespace tandem::inline v0::kernels {

const StepState* StepSlots::place(const StepState* host) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].host == host && slots[i].works == works) {
      return device + i;
    }
  }
  check<CaptureError>(slots.size() < kMost,
                      "captured step: more than {} optimizers' steps and random draws with states of their own in one "
                      "step on a GPU; use fewer optimizers or parameter groups",
                      kMost);
  slots.push_back({host, works});
  return device + slots.size() - 1;
}

StepArgument step_argument(const Queue& queue, const StepState* state) {
  if (state == nullptr) {
    return {.value = {}, .device = nullptr};
  }
  StepSlots* slots = queue.step_slots();
  return {.value = *state, .device = slots != nullptr ? slots->place(state) : nullptr};
}

}  // namespace tandem::inline v0::kernels
