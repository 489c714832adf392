#pragma once

#include <tandem/autograd/ops/common.h>

// Internal: what ops that overwrite their first operand share.

namespace tandem::inline v0::autograd {

/// `target` can be written, and the result of the op, which has type `result`, fits into it.
void check_in_place(const char* op, const Tensor& target, DType result);
/// Throws AutogradError unless recording a change of `target` gives right gradients.
void check_recordable(const char* op, const Tensor& target);
/// `target`, for which check_recordable() passed, takes over the elements and the history of `value`, which was just
/// computed from it.
void take_over(Tensor& target, const Tensor& value);

}  // namespace tandem::inline v0::autograd
