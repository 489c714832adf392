#pragma once

#include <span>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// The gradient of each sample's own loss by all `parameters` together has a norm; this returns these norms, [batch],
/// of the dtype and on the device of `losses` [batch], for example cross_entropy(model(x), y, {.reduction = none}). It
/// takes one backward pass for all samples (Goodfellow, "Efficient per-example gradient computations", 2015), and for
/// layers that see a sample at several places one product more for each sample. The gradients themselves are never
/// together in memory. The norms serve clipping by sample (differential privacy) and choosing samples by importance.
/// The graph stays, so that backward() may follow; no grad() changes.
///
/// Sample b must be row b of what each layer gets: leave out a table of positions whose rows all samples share. Samples
/// must not depend on each other, as they do through batch norm in training mode. Parameters may be those of linear
/// layers, convolutions, embeddings and layer norms, also in an AutocastScope, but not in DataParallel's replicas.
/// Throws AutogradError, with the op's name, for a parameter of another op and for one that is used twice, and
/// ShapeError for a layer whose result does not begin with the batch.
TANDEM_API Tensor per_sample_gradient_norms(const Tensor& losses, std::span<const Tensor> parameters);

}  // namespace tandem::inline v0::autograd
