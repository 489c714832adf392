#pragma once

#include <tandem/core/host_device.h>

namespace tandem::inline v0::kernels {

// A product or a sum that is rounded on its own, where a GPU's compiler would make a*b + c one operation, with one
// rounding: for numbers that must be the same on every device. (Those of the CPU are compiled without that.)

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
