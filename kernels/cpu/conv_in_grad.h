#pragma once

#include <tandem/kernels/conv.h>

namespace tandem::inline v0::kernels::cpu {

/// The gradient of a convolution's images, for T = float or double.
template <class T>
void convolve_back(Context& context, const ConvInGrad& kernel);

}  // namespace tandem::inline v0::kernels::cpu
