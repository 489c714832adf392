#pragma once

#include <tandem/core/host_device.h>

namespace tandem::inline v0::kernels {

// Products that are rounded on their own. A GPU's compiler would otherwise turn a*b + c into one operation with one
// rounding, and numbers that must be the same on every device would differ. (CPU sources are compiled without that
// contraction.)

TANDEM_HD inline float rounded_mul(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TANDEM_HD inline double rounded_mul(double a, double b) noexcept {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace tandem::inline v0::kernels
