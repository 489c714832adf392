#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/step_state.h>

// Loss scaling (Micikevicius et al., "Mixed precision training", 2018). All values that it decides by stay on the
// device.

namespace tandem::inline v0::kernels {

/// Starts a step, before its gradients are checked: inverse = 1 / *scale in f32 (1 if `scale` is null), found_inf = 0.
struct StartGradScale {
  static constexpr const char* kName = "start_grad_scale";
  const float* scale;
  GradScale* record;
};
void run(OnCpu, Context& context, const StartGradScale& kernel);
void run(OnCuda, Context& context, const StartGradScale& kernel);

/// Sets found_inf of the record and *found_inf to 1 if a gradient times record->inverse is not finite in the type it is
/// computed in. With `unscale` the gradients become those products. Zeros stay zero even when the inverse is infinite,
/// because the gaps of a ParameterStore are never written again.
struct FindInf {
  static constexpr const char* kName = "find_inf";
  DType dtype;
  bool unscale;
  std::int64_t count;
  void* gradients;
  GradScale* record;
  float* found_inf;  // belongs to the scaler; only UpdateGradScale sets it back to 0
};
void run(OnCpu, Context& context, const FindInf& kernel);
void run(OnCuda, Context& context, const FindInf& kernel);

/// Runs after the last FindInf and before the update. Counts the update as left out if an infinite value was found.
/// `unscaled` says that the gradients are multiplied already.
struct FinishGradScale {
  static constexpr const char* kName = "finish_grad_scale";
  bool unscaled;
  GradScale* record;
};
void run(OnCpu, Context& context, const FinishGradScale& kernel);
void run(OnCuda, Context& context, const FinishGradScale& kernel);

/// If *found_inf is set, scale *= backoff and the tracker restarts. Else the tracker counts; at `interval` it restarts
/// and scale *= growth, unless the product is infinite. Sets *found_inf to 0.
struct UpdateGradScale {
  static constexpr const char* kName = "update_grad_scale";
  float* scale;
  std::int32_t* growth_tracker;
  float* found_inf;
  double growth, backoff;
  std::int64_t interval;
};
void run(OnCpu, Context& context, const UpdateGradScale& kernel);
void run(OnCuda, Context& context, const UpdateGradScale& kernel);

/// One thread's work on the scalars of loss scaling, for both devices.
namespace formula {

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

}  // namespace formula
}  // namespace tandem::inline v0::kernels
