#include <tandem/autograd/ops/matrix.h>

namespace tandem::inline v0::autograd {

namespace {

// A dimension of size 1 may have any stride, but the kernel requires one of the two strides to be 1.
kernels::Matrix matrix_of(const View& view) {
  const bool row_major = view.strides[1] == 1 || view.sizes[1] == 1;
  return row_major ? kernels::Matrix{view.data(), view.strides[0], 1}
                   : kernels::Matrix{view.data(), 1, view.strides[1]};
}

kernels::Matmul product(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& after) {
  return {.dtype = out.dtype,
          .accumulate = accumulate,
          .m = a.sizes[0],
          .n = b.sizes[1],
          .k = a.sizes[1],
          .a = matrix_of(a),
          .b = matrix_of(b),
          .out = out.data(),
          .out_stride = out.sizes[1],
          .after = after};
}

}  // namespace

void multiply(const View& out, const View& a, const View& b, Accumulate accumulate, const Epilogue& after) {
  if (out.numel() == 0) {
    return;
  }
  kernels::launch(detail::context_of(out), product(out, a, b, accumulate, after));
}

namespace {

// Makes the strides of the last two dimensions acceptable to the kernel; the batch may have any strides.
View batch_of_matrices(const View& view) {
  const int rows = view.sizes.ndim() - 2;
  View matrix = view;
  matrix.sizes = {view.sizes[rows], view.sizes[rows + 1]};
  matrix.strides = {view.strides[rows], view.strides[rows + 1]};
  return detail::is_matrix_like(matrix) ? view : detail::contiguous(view);
}

// Returns the first matrix of a batch and stores the strides of the batch in `operand`.
View split_batch(const View& view, const Shape& batch, kernels::Operand& operand) {
  View first = view;
  View rest = view;
  first.sizes = first.strides = rest.sizes = rest.strides = {};
  for (int dim = 0; dim < view.sizes.ndim(); ++dim) {
    View& target = dim < view.sizes.ndim() - 2 ? rest : first;
    target.sizes.push_back(view.sizes[dim]);
    target.strides.push_back(view.strides[dim]);
  }
  operand = detail::operand(rest, batch);
  return first;
}

}  // namespace

void multiply_batched(const View& out, const View& a, const View& b, Accumulate accumulate) {
  if (out.numel() == 0) {
    return;
  }
  Shape batch = out.sizes;
  batch.erase(batch.ndim() - 1);
  batch.erase(batch.ndim() - 1);
  kernels::BatchedMatmul kernel{.matrix = {}, .batch = detail::loop_over(batch), .a = {}, .b = {}, .out = {}};
  const View left = batch_of_matrices(a);
  const View right = batch_of_matrices(b);
  const View first_a = split_batch(left, batch, kernel.a);
  const View first_b = split_batch(right, batch, kernel.b);
  const View first_out = split_batch(out, batch, kernel.out);
  kernel.matrix = product(first_out, first_a, first_b, accumulate, {});
  kernels::simplify(kernel.batch, {&kernel.a, &kernel.b, &kernel.out});
  kernels::launch(detail::context_of(out), kernel);
}

}  // namespace tandem::inline v0::autograd
