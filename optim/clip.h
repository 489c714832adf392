#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Scales the gradients of `parameters` together so that their total norm is at most max_norm (by
/// min(1, max_norm / (norm + 1e-6)), as PyTorch). The norm is (sum |g|^norm_type)^(1 / norm_type), or max |g| for an
/// infinite norm_type. Returns the norm before, an f64 scalar on the first parameter's device. Parameters without a
/// gradient do not count. Throws ConfigError unless max_norm > 0 and norm_type > 0, and, if error_if_nonfinite,
/// ValueError for a norm that is infinite or not a number; the gradients are as they were then.
TANDEM_API Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                                  bool error_if_nonfinite = false);

/// Brings each element of the gradients of `parameters` into [-clip_value, clip_value]; NaN stays. Throws ConfigError
/// unless clip_value >= 0.
TANDEM_API void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace tandem::inline v0::optim
