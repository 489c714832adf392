#pragma once

#include <cstdint>

#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

/// gradient *= g, for a gradient in f32 that a loss's forward pass wrote for g = 1; where that is so, nothing is done.
struct RescaleGradient {
  static constexpr const char* kName = "rescale_gradient";
  std::int64_t count;
  const float* grad;  // [1]
  float* gradient;    // [count], dense
};
void run(OnCpu, Context& context, const RescaleGradient& kernel);
void run(OnCuda, Context& context, const RescaleGradient& kernel);

}  // namespace tandem::inline v0::kernels
