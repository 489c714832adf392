#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// Options of grad(), with PyTorch's meaning.
struct GradOptions {
  /// The gradient of each output, of its shape; none or an undefined one stands for 1, if the output has one element.
  std::vector<Tensor> grad_outputs = {};
  bool create_graph = false;                        // the gradients have gradients themselves
  std::optional<bool> retain_graph = std::nullopt;  // the graph may be used again; as create_graph if not given
  bool allow_unused = false;                        // an input that takes no part gets an undefined gradient
};

/// The gradients of the sum of `outputs` (each weighted with its grad_outputs) by each of `inputs`, which may be leaves
/// or results; as torch.autograd.grad. Their grad() stays as it is, hooks of tensors run, and those of leaves after
/// accumulation do not. With create_graph the gradients are tensors with a history, so that a loss may contain them:
/// Hessians, gradient penalties, differential equations. Computing them takes about as long as the forward pass for
/// each order.
///
///     auto [du] = autograd::grad(u.sum(), std::array{x}, {.create_graph = true});
///
/// Throws AutogradError: for an input that requires no gradient, or that takes no part in the outputs unless
/// allow_unused; with create_graph also for an op without a second derivative, named before anything is computed.
TANDEM_API std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                    const GradOptions& options = {});
/// This overload takes one output.
template <std::size_t N>
std::array<Tensor, N> grad(const Tensor& output, const std::array<Tensor, N>& inputs, const GradOptions& options = {}) {
  std::vector<Tensor> gradients = grad(std::span(&output, 1), inputs, options);
  std::array<Tensor, N> result;
  for (std::size_t i = 0; i < N; ++i) {
    result[i] = std::move(gradients[i]);
  }
  return result;
}

/// The product of the Hessian of a scalar `output` by the inputs and the vector `v`, which has a part for each input;
/// takes two backward passes, and memory for no matrix. Throws like grad().
TANDEM_API std::vector<Tensor> hessian_vector_product(const Tensor& output, std::span<const Tensor> inputs,
                                                      std::span<const Tensor> v);

}  // namespace tandem::inline v0::autograd
