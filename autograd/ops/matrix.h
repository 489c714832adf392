#pragma once

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/matmul.h>

// Internal: matrix products on raw views.

namespace tandem::inline v0::autograd {

/// What follows a product in the same pass, as kernels::Matmul has it.
struct Epilogue {
  const void* bias = nullptr;
  bool relu = false;
  const void* relu_mask = nullptr;  // laid out as the result, which is 0 wherever this is not positive
  const void* relu_mask_bits = nullptr;
  void* relu_bits = nullptr;
  void* column_sums = nullptr;
  void* a_sums = nullptr;
};

/// out [m, n] (+)= a [m, k] b [k, n], then the epilogue. a and b are matrix_like, out is dense. Nothing at all happens
/// where out has no elements.
void multiply(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& epilogue = {});

/// The same for every matrix of a batch: out [batch..., m, n] is dense; the batch dimensions of a and b broadcast to
/// its, their last two have any strides.
void multiply_batched(const View& out, const View& a, const View& b, Accumulate accumulate);

}  // namespace tandem::inline v0::autograd
