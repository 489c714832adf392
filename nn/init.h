#pragma once

#include <tandem/tensor/tensor.h>

// Initialisation of parameters in place, without recording. Draws come from the current generator.

namespace tandem::inline v0::nn::init {

/// U(-bound, bound) with bound = sqrt(6 / ((1 + a^2) * fan_in)), for a weight [out, in, ...] (He et al., 2015).
/// The default a = sqrt(5) is nn.Linear's in PyTorch: bound = 1 / sqrt(fan_in).
TANDEM_API void kaiming_uniform_(Tensor& weight, double a = 2.2360679774997898);
/// U(low, high).
TANDEM_API void uniform_(Tensor& tensor, double low = 0, double high = 1);

}  // namespace tandem::inline v0::nn::init
