#pragma once

#include <tandem/kernels/fused_update.h>

// Internal: how an optimiser that fuses products launches its update.

namespace tandem::inline v0::optim {

/// Launches `update`, or with a `product` of the gradients both as one kernel, Fused.
template <class Fused, class Kernel>
void launch_update(Device device, const kernels::Matmul* product, const Kernel& update) {
  kernels::Context& context = kernels::context_for(device);
  if (product != nullptr) {
    kernels::launch(context, Fused{.product = *product, .update = update});
  } else {
    kernels::launch(context, update);
  }
}

}  // namespace tandem::inline v0::optim
