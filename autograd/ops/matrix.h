#pragma once

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/matmul.h>

// Internal: matrix products on raw views.

namespace tandem::inline v0::autograd {

using kernels::Epilogue;

/// out [m, n] (+)= a [m, k] b [k, n], then the epilogue. a and b are matrix_like, out is dense. Does nothing if out has
/// no elements.
void multiply(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& after = {});

/// multiply() for every matrix of a batch. out [batch..., m, n] is dense. The batch dimensions of a and b broadcast to
/// those of out, and their last two dimensions may have any strides.
void multiply_batched(const View& out, const View& a, const View& b, Accumulate accumulate);

// ---- ReLU before a product or after linear(), for relu(); defined in linear.cpp ----

/// Overwrites x with relu(x) and lets the node of linear() do the ReLU's part of the backward pass. Does nothing and
/// returns false unless x is the only handle to a result of linear() that nothing else uses and that has not changed.
bool join_relu(const Tensor& x);
/// Lets a product that takes `result` as its input write 0 into the gradient of `result` wherever the ReLU is off.
/// `result` is the result of a ReLU whose backward reads Gradients::is_as_noted().
void let_products_mask(const Tensor& result);

}  // namespace tandem::inline v0::autograd
