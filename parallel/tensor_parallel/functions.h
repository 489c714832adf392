#pragma once

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

// Differentiable exchanges between the ranks of a group, of which tensor-parallel layers are made. Each is a
// collective, and so is its backward pass: all ranks make the same calls and call backward(). The group must live until
// then. Shoeybi et al., "Megatron-LM" (2019); those of the sequence: Korthikanti et al., "Reducing Activation
// Recomputation in Large Transformer Models" (2022).

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Returns `x`, which all ranks have. Backward: the sum of the ranks' gradients. Goes before a layer that computes a
/// part of its outputs on each rank.
TANDEM_API Tensor copy_to_group(const Tensor& x, ProcessGroup& group);
/// The sum of the ranks' `x`, on all ranks. Backward: the gradient as it is. Goes behind a layer that has a part of its
/// inputs on each rank.
TANDEM_API Tensor reduce_from_group(const Tensor& x, ProcessGroup& group);
/// This rank's part of `x`, which all ranks have, along `dim`. Backward: the ranks' gradients joined. Throws ShapeError
/// if the size is no multiple of the number of ranks.
TANDEM_API Tensor scatter_to_group(const Tensor& x, ProcessGroup& group, int dim = -1);
/// The ranks' `x` joined along `dim`, on all ranks, which then compute the same. Backward: this rank's part.
TANDEM_API Tensor gather_from_group(const Tensor& x, ProcessGroup& group, int dim = -1);
/// The ranks' rows `x` joined along dimension 0, of which the ranks then compute different parts. Backward: this rank's
/// rows of the sum of the gradients.
TANDEM_API Tensor gather_from_sequence(const Tensor& x, ProcessGroup& group);
/// This rank's rows, along dimension 0, of the sum of the ranks' `x`. Backward: the ranks' gradients joined. Throws
/// ShapeError if the number of rows is no multiple of the number of ranks.
TANDEM_API Tensor reduce_scatter_to_sequence(const Tensor& x, ProcessGroup& group);

/// Each rank of `group` has other elements of the parameter: norms of gradients add them up, and a GradScaler that
/// finds an infinite one leaves the step out on all ranks. The layers of layers.h call this for their weights. The
/// group must outlive the parameter's last step. Throws AutogradError unless `parameter` is a leaf that requires a
/// gradient, ConfigError if it is divided among another group.
TANDEM_API void divide_among(const Tensor& parameter, ProcessGroup& group);

}  // namespace tandem::inline v0::parallel
