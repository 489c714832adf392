#include <algorithm>
#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/launch/step.h>

namespace tandem::inline v0::kernels {

namespace {

template <std::size_t kRoom>
struct Values {
  StepState values[kRoom];
};

template <std::size_t kRoom>
__global__ void write_states_kernel(StepState* device, std::int64_t count, Values<kRoom> from) {
  const auto i = static_cast<std::int64_t>(threadIdx.x);
  if (i < count) {
    device[i] = from.values[i];
  }
}

template <std::size_t kRoom>
void write(const Queue& queue, StepState* device, std::span<const StepState> values) {
  Values<kRoom> from;
  std::copy(values.begin(), values.end(), from.values);
  queue.launch("write_states", 1, static_cast<unsigned int>(kRoom), 0, write_states_kernel<kRoom>, device,
               static_cast<std::int64_t>(values.size()), from);
}

}  // namespace

void write_states(const Queue& queue, StepState* device, std::span<const StepState> values) {
  const std::size_t count = values.size();
  (count <= 1    ? write<1>
   : count <= 8  ? write<8>
   : count <= 32 ? write<32>
                 : write<StepSlots::kMost>)(queue, device, values);
}

}  // namespace tandem::inline v0::kernels
