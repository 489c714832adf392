#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/ops/matrix.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Vectors become matrices with a dimension of 1 where PyTorch's matmul says.
View as_left(const View& a) { return a.sizes.ndim() == 1 ? detail::unsqueeze(a, 0) : a; }
View as_right(const View& b) { return b.sizes.ndim() == 1 ? detail::unsqueeze(b, 1) : b; }

}  // namespace

Tensor Tensor::matmul(const Tensor& other) const {
  check_floating("matmul", *this);
  check_same_kind("matmul", *this, other);
  const Shape& left = shape();
  const Shape& right = other.shape();
  check<ShapeError>(left.ndim() >= 1 && left.ndim() <= 2 && right.ndim() >= 1 && right.ndim() <= 2,
                    "{}expected matrices or vectors, got {} and {}", core::MessagePrefix{"matmul"}, left, right);
  check<ShapeError>(left.back() == right[0], "{}{} times {}: the inner sizes {} and {} differ",
                    core::MessagePrefix{"matmul"}, left, right, left.back(), right[0]);
  Shape sizes;
  if (left.ndim() == 2) {
    sizes.push_back(left[0]);
  }
  if (right.ndim() == 2) {
    sizes.push_back(right[1]);
  }
  View out = detail::empty_view(sizes, dtype(), device());
  const View a = detail::matrix_like(as_left(raw()));
  const View b = detail::matrix_like(as_right(other.raw()));
  const Shape matrix{a.sizes[0], b.sizes[1]};
  multiply(*detail::try_reshape(out, matrix), a, b, Accumulate::no);
  return record("matmul", std::move(out), {this, &other}, [&] {
    return [a = saved_for(other, *this), b = saved_for(*this, other), matrix](Gradients& g) {
      const View grad = detail::matrix_like(*detail::try_reshape(detail::contiguous(g.output()), matrix));
      if (g.wants(0)) {
        const Destination to = g.destination(0);
        const View factor = detail::matrix_like(as_right(b.get(g)));
        multiply(as_left(to.view), grad, detail::transpose(factor, 0, 1), to.accumulate);
      }
      if (g.wants(1)) {
        const Destination to = g.destination(1);
        const View factor = detail::matrix_like(as_left(a.get(g)));
        multiply(as_right(to.view), detail::transpose(factor, 0, 1), grad, to.accumulate);
      }
    };
  });
}

}  // namespace tandem::inline v0
