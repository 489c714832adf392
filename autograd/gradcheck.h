#pragma once

#include <functional>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// What gradcheck() tolerates.
struct GradcheckOptions {
  double eps = 1e-6;   // step of the central difference
  double atol = 1e-5;  // |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;  // see atol
};

/// Compares the gradients that backward() gives for `fn` with central differences, for every input that requires a
/// gradient and every element; results with several elements are weighted with fixed random numbers first. Inputs are
/// f64 leaves. Throws AutogradError naming input, element and both values.
TANDEM_API void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace tandem::inline v0::autograd
