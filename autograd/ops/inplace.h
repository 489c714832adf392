#pragma once

#include <tandem/autograd/ops/common.h>

// Internal: helpers of the ops that overwrite their first operand.

namespace tandem::inline v0::autograd {

/// Throws unless `target` is writable and can hold the op's result, which has dtype `result`.
void check_in_place(const char* op, const Tensor& target, DType result);
/// Throws AutogradError unless recording an in-place change of `target` gives correct gradients.
void check_recordable(const char* op, const Tensor& target);
/// Gives `target` the elements and history of `value`, which was just computed from it. check_recordable() must have
/// passed for `target`.
void take_over(Tensor& target, const Tensor& value);

}  // namespace tandem::inline v0::autograd
