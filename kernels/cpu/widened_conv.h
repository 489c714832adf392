#pragma once

#include <tandem/kernels/conv.h>

// Convolutions of 16-bit arrays, T = BFloat16 or Float16: some images at a time, or a strip of a large one, are widened
// to f32. Sums stay in f32 until the end, where they are rounded once.

namespace tandem::inline v0::kernels::cpu {

template <class T>
void convolve_widened(Context& context, const Conv& kernel);
template <class T>
void convolve_back_widened(Context& context, const ConvInGrad& kernel);
template <class T>
void weight_gradient_widened(Context& context, const ConvWeightGrad& kernel);

}  // namespace tandem::inline v0::kernels::cpu
