#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Scales the gradients of `parameters` together so that their total 2-norm is at most max_norm (by
/// min(1, max_norm / (norm + 1e-6)), as PyTorch). Returns the norm before, an f64 scalar on the first parameter's
/// device. Parameters without a gradient do not count. Throws ConfigError unless max_norm > 0.
TANDEM_API Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace tandem::inline v0::optim
