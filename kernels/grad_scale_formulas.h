#pragma once

#include <cmath>

#include <tandem/core/host_device.h>
#include <tandem/kernels/grad_scale.h>

// One thread's work on the scalars of loss scaling, shared by all backends.

namespace tandem::inline v0::kernels::formula {

TANDEM_HD inline void apply(const StartGradScale& kernel) {
  kernel.record->inverse = kernel.scale == nullptr ? 1.0 : static_cast<float>(1.0 / *kernel.scale);
  kernel.record->found_inf = 0;
}

TANDEM_HD inline void apply(const FinishGradScale& kernel) {
  if (kernel.record->found_inf != 0) {
    kernel.record->skipped += 1;
  }
  if (kernel.unscaled) {
    kernel.record->inverse = 1;
  }
}

TANDEM_HD inline void apply(const UpdateGradScale& kernel) {
  if (*kernel.found_inf != 0) {
    *kernel.scale = static_cast<float>(*kernel.scale * kernel.backoff);
    *kernel.growth_tracker = 0;
  } else if (*kernel.growth_tracker + 1 < kernel.interval) {
    *kernel.growth_tracker += 1;
  } else {
    const auto grown = static_cast<float>(*kernel.scale * kernel.growth);
    if (std::isfinite(grown)) {
      *kernel.scale = grown;
    }
    *kernel.growth_tracker = 0;
  }
  *kernel.found_inf = 0;
}

}  // namespace tandem::inline v0::kernels::formula
