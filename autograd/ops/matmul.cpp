#include <tandem/autograd/ops/matmul.h>

#include <algorithm>

#include <tandem/kernels/fused_update.h>

// Matrix products with the semantics of PyTorch's matmul. A vector becomes a matrix with a dimension of size 1, which
// is removed from the result. Dimensions before the last two form a batch and broadcast.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// A dimension of size 1 may have any stride, but the kernel requires one of the two strides to be 1.
kernels::Matrix matrix_of(const View& view) {
  const std::int64_t* strides = view.strides.begin();
  const bool row_major = strides[1] == 1 || view.sizes.begin()[1] == 1;
  return row_major ? kernels::Matrix{view.data(), strides[0], 1} : kernels::Matrix{view.data(), 1, strides[1]};
}

kernels::Matmul product(DType dtype, void* out, const MatrixIn& a, const MatrixIn& b, Accumulate accumulate,
                        const Epilogue& after) {
  return {.dtype = dtype,
          .accumulate = accumulate,
          .m = a.rows,
          .n = b.cols,
          .k = a.cols,
          .a = a.elements,
          .b = b.elements,
          .out = out,
          .out_stride = b.cols,
          .after = after};
}

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

// multiply() for every matrix of a batch. out [batch..., m, n] is dense. The batch dimensions of a and b broadcast to
// those of out, and their last two dimensions may have any strides.
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
  kernel.matrix = product(out.dtype, first_out.data(), MatrixIn(first_a), MatrixIn(first_b), accumulate, {});
  kernels::simplify(kernel.batch, {&kernel.a, &kernel.b, &kernel.out});
  kernels::launch(detail::context_of(out), kernel);
}

View as_left(const View& a) { return a.sizes.ndim() == 1 ? detail::unsqueeze(a, 0) : a; }
View as_right(const View& b) { return b.sizes.ndim() == 1 ? detail::unsqueeze(b, 1) : b; }

Shape batch_of(const Shape& sizes) {
  Shape batch;
  for (int dim = 0; dim + 2 < sizes.ndim(); ++dim) {
    batch.push_back(sizes[dim]);
  }
  return batch;
}

bool broadcast(const Shape& a, const Shape& b) {
  for (int i = 1; i <= std::min(a.ndim(), b.ndim()); ++i) {
    const std::int64_t x = a[a.ndim() - i];
    const std::int64_t y = b[b.ndim() - i];
    if (x != y && x != 1 && y != 1) {
      return false;
    }
  }
  return true;
}

View swapped(const View& view) { return detail::transpose(view, view.sizes.ndim() - 2, view.sizes.ndim() - 1); }

// out (+)= a b for operands with at least two dimensions. If `out` was broadcast over batches, the products of all
// batches that it represents are summed.
void product_to(const View& out, const View& a, const View& b, Accumulate accumulate) {
  if (a.sizes.ndim() == 2 && b.sizes.ndim() == 2) {
    View copy_of_a;
    View copy_of_b;
    return multiply(out, MatrixIn(detail::matrix_like(a, copy_of_a)), MatrixIn(detail::matrix_like(b, copy_of_b)),
                    accumulate);
  }
  Shape full = broadcast_shapes(batch_of(a.sizes), batch_of(b.sizes), "matmul");
  full.push_back(a.sizes[a.sizes.ndim() - 2]);
  full.push_back(b.sizes.back());
  if (full == out.sizes) {
    return multiply_batched(out, a, b, accumulate);
  }
  const View whole = detail::empty_view(full, out.dtype, out.device());
  multiply_batched(whole, a, b, Accumulate::no);
  detail::sum_to(out, whole, accumulate);
}

// Gives a gradient whose dimension `added` (0: none) a vector does not have.
void give_matrix(GradientGraph& g, std::uint32_t i, const Tensor& gradient, int added) {
  g.give(i, added == 0 ? gradient
                       : sum_to_size(gradient, added == -1 ? Shape{gradient.size(-2), 1} : Shape{1, gradient.size(-1)})
                             .reshape(g.input_sizes(i)));
}

}  // namespace

bool autograd::postpone_product(Gradients& g, std::uint32_t i, const View& a, const View& b) {
  // An operand that is trained itself may be updated before the product is computed.
  const bool fits = detail::fuses_updates() && a.sizes.ndim() == 2 && b.sizes.ndim() == 2 && g.may_postpone(i) &&
                    detail::is_matrix_like(a) && detail::is_matrix_like(b) && !a.storage->holds_leaf() &&
                    !b.storage->holds_leaf();
  if (!fits) {
    return false;
  }
  const kernels::Matmul whole = product(b.dtype, nullptr, MatrixIn(a), MatrixIn(b), Accumulate::no, {});
  if (!kernels::fuses_update(b.device(), whole)) {
    return false;
  }
  g.postpone(i, whole, a, b);
  return true;
}

MatrixIn::MatrixIn(const View& view)
    : elements(matrix_of(view)), rows(view.sizes.begin()[0]), cols(view.sizes.begin()[1]) {}

void autograd::multiply(const View& out, const MatrixIn& a, const MatrixIn& b, Accumulate accumulate,
                        const Epilogue& after) {
  if (out.numel() == 0) {
    return;
  }
  kernels::launch(detail::context_of(out), product(out.dtype, out.data(), a, b, accumulate, after));
}

Tensor Tensor::matmul(const Tensor& other) const {
  if (lowers({this, &other})) [[unlikely]] {
    return lowered(*this).matmul(lowered(other));
  }
  check_floating("matmul", *this);
  check_same_kind("matmul", *this, other);
  const Shape& left = shape();
  const Shape& right = other.shape();
  check<ShapeError>(left.ndim() >= 1 && right.ndim() >= 1, "{}expected matrices or vectors, got {} and {}",
                    core::MessagePrefix{"matmul"}, left, right);
  const std::int64_t inner = right[right.ndim() == 1 ? 0 : right.ndim() - 2];
  check<ShapeError>(left.back() == inner,
                    "{}{} times {}: the inner sizes {} and {} differ; is a .transpose(-2, -1) missing? [TDM-E105]",
                    core::MessagePrefix{"matmul"}, left, right, left.back(), inner);
  if (left.ndim() > 2 && right.ndim() == 2) {  // one matrix for the whole batch: a single product
    Shape sizes = left;
    sizes[sizes.ndim() - 1] = right[1];
    std::int64_t rows = 1;
    for (int dim = 0; dim + 1 < left.ndim(); ++dim) {
      rows *= left[dim];
    }
    return reshape({rows, inner}).matmul(other).reshape(sizes);
  }
  const View a = as_left(raw());
  const View b = as_right(other.raw());
  check<ShapeError>(broadcast(batch_of(a.sizes), batch_of(b.sizes)),
                    "{}{} times {}: the batches {} and {} do not broadcast [TDM-E105]", core::MessagePrefix{"matmul"},
                    left, right, batch_of(a.sizes), batch_of(b.sizes));
  Shape full = broadcast_shapes(batch_of(a.sizes), batch_of(b.sizes), "matmul");
  Shape sizes = full;
  full.push_back(a.sizes[a.sizes.ndim() - 2]);
  full.push_back(b.sizes.back());
  if (left.ndim() > 1) {
    sizes.push_back(full[full.ndim() - 2]);
  }
  if (right.ndim() > 1) {
    sizes.push_back(full.back());
  }
  View out = detail::empty_view(sizes, dtype(), device());
  product_to(*detail::try_reshape(out, full), a, b, Accumulate::no);
  return record("matmul", std::move(out), {this, &other}, [&] {
    return [a = saved_for(other, *this), b = saved_for(*this, other), full](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor grad = g.output().reshape(full);
        if (g.wants(0)) {
          const Tensor factor = g.input(1, b);
          const Tensor matrix = factor.dim() == 1 ? factor.unsqueeze(1) : factor;
          give_matrix(g, 0, grad.matmul(matrix.transpose(-2, -1)), g.input_sizes(0).ndim() == 1 ? -2 : 0);
        }
        if (g.wants(1)) {
          const Tensor factor = g.input(0, a);
          const Tensor matrix = factor.dim() == 1 ? factor.unsqueeze(0) : factor;
          give_matrix(g, 1, matrix.transpose(-2, -1).matmul(grad), g.input_sizes(1).ndim() == 1 ? -1 : 0);
        }
      } else {
        const View grad = *detail::try_reshape(detail::contiguous(g.output()), full);
        if (g.wants(0)) {
          const View b_swapped = swapped(as_right(b.get(g)));
          if (!postpone_product(g, 0, grad, b_swapped)) {
            const Destination to = g.destination(0);
            product_to(as_left(to.view), grad, b_swapped, to.accumulate);
          }
        }
        if (g.wants(1)) {
          const View a_swapped = swapped(as_left(a.get(g)));
          if (!postpone_product(g, 1, a_swapped, grad)) {
            const Destination to = g.destination(1);
            product_to(as_right(to.view), a_swapped, grad, to.accumulate);
          }
        }
      }
    };
  });
}

}  // namespace tandem::inline v0
