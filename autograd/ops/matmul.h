#pragma once

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/matmul.h>

// Internal: the matrix product on raw views.

namespace tandem::inline v0::autograd {

using kernels::Epilogue;

/// out [m, n] (+)= a [m, k] b [k, n], then the epilogue. a and b are matrix_like, out is dense. Does nothing if out has
/// no elements.
void multiply(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& after = {});

}  // namespace tandem::inline v0::autograd
