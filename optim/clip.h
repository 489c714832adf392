#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Scales the gradients of `parameters` together so that their total norm is at most max_norm. The factor is min(1,
/// max_norm / (norm + 1e-6)), as in PyTorch. The norm is (sum |g|^norm_type)^(1 / norm_type), or max |g| for an
/// infinite norm_type. Returns the norm before scaling, an f64 scalar on the first parameter's device. Parameters
/// without a gradient do not count. Throws ConfigError unless max_norm > 0 and norm_type > 0. With error_if_nonfinite,
/// throws ValueError for a norm that is infinite or NaN and leaves the gradients unchanged.
TANDEM_API Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                                  bool error_if_nonfinite = false);

/// Clamps each element of the gradients of `parameters` to [-clip_value, clip_value]; NaN stays. Throws ConfigError
/// unless clip_value >= 0.
TANDEM_API void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace tandem::inline v0::optim
