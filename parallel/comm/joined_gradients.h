#pragma once

#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Reduces the gradients of these parameters over the ranks of `group`, in one call for each dtype and device. For
/// loops without DistributedDataParallel: call it after backward(). A parameter that has no gradient on this rank
/// counts as one with zeros; frozen ones are left out. A collective: all ranks pass parameters of the same shapes.
TANDEM_API void all_reduce_gradients(const std::vector<Tensor>& parameters, ProcessGroup& group,
                                     ReduceOp op = ReduceOp::avg);

}  // namespace tandem::inline v0::parallel
