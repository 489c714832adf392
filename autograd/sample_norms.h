#pragma once

#include <span>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// The norm, for each sample, of the gradient that the sample's own loss has by all `parameters` together: [batch], of
/// the dtype and on the device of `losses` [batch], for example cross_entropy(model(x), y, {.reduction = none}). One
/// backward pass for all samples (Goodfellow, "Efficient per-example gradient computations", 2015), and for layers that
/// see a sample at several places one product more for each sample; the gradients themselves are never together in
/// memory. For clipping by sample (differential privacy) and for choosing samples by importance. The graph stays, so
/// that backward() may follow; no grad() changes.
///
/// Sample b must be row b of what each layer gets, and samples must not depend on each other, as they do through batch
/// norm in training mode. Parameters may be those of linear layers, convolutions, embeddings and layer norms. Throws
/// AutogradError, with the op's name, for a parameter of another op and for one that is used twice.
TANDEM_API Tensor per_sample_gradient_norms(const Tensor& losses, std::span<const Tensor> parameters);

}  // namespace tandem::inline v0::autograd
