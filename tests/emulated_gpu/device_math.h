#pragma once

// Part of device.h, which includes it before <cmath>: the C library's functions that kernels call, directly or by
// std::exp() and the like, are called by other names in .cu files. rounding.cpp defines these names. A GPU's results
// differ from the C library's in their last bits, and the functions there can be told to differ, too.
// (GCC computes the sine and cosine of one number in one call of the C library, which stays as it is.)

// EMULATED_GPU_MATH(F) is F(name) for each function of one argument.
#define EMULATED_GPU_MATH(F) \
  F(exp)                     \
  F(exp2)                    \
  F(expm1)                   \
  F(log)                     \
  F(log2)                    \
  F(log1p)                   \
  F(sin)                     \
  F(cos)                     \
  F(tanh)                    \
  F(erf)                     \
  F(erfc)

#if !defined(EMULATED_GPU_DEFINES_MATH)
#define EMULATED_GPU_RENAME(name)                                   \
  double name(double) noexcept __asm__("emulated_gpu_libm_" #name); \
  float name##f(float) noexcept __asm__("emulated_gpu_libm_" #name "f");
extern "C" {
EMULATED_GPU_MATH(EMULATED_GPU_RENAME)
double pow(double, double) noexcept __asm__("emulated_gpu_libm_pow");
float powf(float, float) noexcept __asm__("emulated_gpu_libm_powf");
}
#undef EMULATED_GPU_RENAME
#endif
