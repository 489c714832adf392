#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/step_state.h>

// Loss scaling (Micikevicius et al., "Mixed precision training", 2018) with all that it decides by on the device.

namespace tandem::inline v0::kernels {

/// Before the gradients of a step are looked at: inverse = 1 / *scale in f32 (1 if `scale` is null), found_inf = 0.
struct StartGradScale {
  static constexpr const char* kName = "start_grad_scale";
  const float* scale;
  GradScale* record;
};
void run(OnCpu, Context& context, const StartGradScale& kernel);
void run(OnCuda, Context& context, const StartGradScale& kernel);

/// Marks the record and *found_inf with 1 if a gradient times record->inverse is not finite in the type it is computed
/// in. With `unscale` the gradients become those products; zeros stay zero even when the inverse is infinite: the gaps
/// of a ParameterStore are never written again.
struct FindInf {
  static constexpr const char* kName = "find_inf";
  DType dtype;
  bool unscale;
  std::int64_t count;
  void* gradients;
  GradScale* record;
  float* found_inf;  // of the scaler: never set back here
};
void run(OnCpu, Context& context, const FindInf& kernel);
void run(OnCuda, Context& context, const FindInf& kernel);

/// After that and before the update, which is counted as left out if something was found; `unscaled`: the gradients are
/// multiplied already.
struct FinishGradScale {
  static constexpr const char* kName = "finish_grad_scale";
  bool unscaled;
  GradScale* record;
};
void run(OnCpu, Context& context, const FinishGradScale& kernel);
void run(OnCuda, Context& context, const FinishGradScale& kernel);

/// If *found_inf: scale *= backoff and the tracker begins anew; else the tracker counts, and at `interval` begins anew
/// with scale *= growth, unless that is infinite. *found_inf = 0.
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

}  // namespace tandem::inline v0::kernels
