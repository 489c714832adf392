#pragma once

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/matmul.h>

// Internal: the matrix product on raw views.

namespace tandem::inline v0::autograd {

using kernels::Epilogue;

/// A matrix that a product reads.
struct MatrixIn {
  kernels::Matrix elements;
  std::int64_t rows, cols;

  /// Refers to the elements of `view`, which is matrix_like.
  explicit MatrixIn(const View& view);
  MatrixIn(const kernels::Matrix& of, std::int64_t r, std::int64_t c) : elements(of), rows(r), cols(c) {}
  MatrixIn transposed() const { return {{elements.data, elements.col_stride, elements.row_stride}, cols, rows}; }
};

/// out [m, n] (+)= a [m, k] b [k, n], then the epilogue. out is dense, and may have other sizes with as many elements.
/// Does nothing if out has no elements.
void multiply(const View& out, const MatrixIn& a, const MatrixIn& b, Accumulate accumulate, const Epilogue& after = {});

/// In a step that fuses updates, and if input `i` is a weight for which that pays: leaves its gradient, the product of
/// two matrices, to the update of its optimiser. False if the gradient is to be computed now.
bool postpone_product(Gradients& g, std::uint32_t i, const View& a, const View& b);

}  // namespace tandem::inline v0::autograd
