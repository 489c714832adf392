#pragma once

#include <functional>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// Tolerances of gradcheck().
struct GradcheckOptions {
  double eps = 1e-6;   // step of the central difference
  double atol = 1e-5;  // |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;  // see atol
};

/// Compares the gradients that backward() computes for `fn` with central differences, for every element of every input
/// that requires a gradient. A result with several elements is first weighted with fixed random numbers. Inputs must be
/// f64 leaves. Throws AutogradError naming the input, the element and both values.
TANDEM_API void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

/// gradcheck() of the gradients that grad(create_graph) computes for `fn`, by its inputs and by the gradient of its
/// result; and compares these gradients with those of backward(), to 1e-10. Throws like gradcheck().
TANDEM_API void gradgradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                              const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace tandem::inline v0::autograd
