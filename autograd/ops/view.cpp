#include <algorithm>

#include <tandem/autograd/ops/common.h>

// Views. The gradient of a view is the same view of the gradient.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Records a view whose gradient is `inverse(gradient)`, a view of equal size; of a tensor as of a View.
template <class Inverse>
Tensor record_view(const char* op, View out, const Tensor& x, Inverse inverse) {
  return record(op, std::move(out), {&x}, [&] {
    return [inverse](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, inverse(g.output()));
      } else {
        g.deliver(0, inverse(g.output()), false);
      }
    };
  });
}

template <class Part>
Tensor record_part(const char* op, View out, const Tensor& x, Part part);

// A tensor of these sizes that is 0 but for the part `part(whole)`, which is `x`.
template <class Part>
Tensor spread(const char* op, const Tensor& x, const Shape& sizes, Part part) {
  View out = detail::empty_view(sizes, x.dtype(), x.device());
  detail::fill(out, 0);
  detail::copy(part(out), x.raw());
  return record(op, std::move(out), {&x}, [&] {
    return [op, part](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, record_part(op, part(g.output().raw()), g.output(), part));
      } else {
        g.deliver(0, part(g.output()), false);
      }
    };
  });
}

// Records a view of a part, outside which the gradient is zero. `part(whole)` is the view.
template <class Part>
Tensor record_part(const char* op, View out, const Tensor& x, Part part) {
  return record(op, std::move(out), {&x}, [&] {
    return [op, part](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, spread(op, g.output(), g.input_sizes(0), part));
      } else {
        detail::copy(part(g.sum(0)), g.output(), Accumulate::yes);
      }
    };
  });
}

// The elements under another shape; copies a gradient that cannot be viewed that way.
View reshaped(const View& view, const Shape& sizes) {
  const View dense = detail::try_reshape(view, sizes) ? view : detail::contiguous(view);
  return *detail::try_reshape(dense, sizes);
}
Tensor reshaped(const Tensor& tensor, const Shape& sizes) { return tensor.reshape(sizes); }

View transposed(const View& view, int dim0, int dim1) { return detail::transpose(view, dim0, dim1); }
Tensor transposed(const Tensor& tensor, int dim0, int dim1) { return tensor.transpose(dim0, dim1); }

View permuted(const View& view, const Shape& order) { return detail::permute(view, order); }
Tensor permuted(const Tensor& tensor, const Shape& order) { return tensor.permute(order); }

Tensor record_reshape(const char* op, View out, const Tensor& x) {
  return record_view(op, std::move(out), x, [sizes = x.shape()](const auto& g) { return reshaped(g, sizes); });
}

}  // namespace

Tensor Tensor::view(const Shape& sizes) const {
  auto out = detail::try_reshape(raw(), detail::infer_shape(raw(), sizes, "view"));
  check<ShapeError>(
      out.has_value(),
      "view: {} with strides {} cannot become {} without a copy; use reshape() or contiguous() [TDM-E107]", shape(),
      strides(), sizes);
  return record_reshape("view", std::move(*out), *this);
}

Tensor Tensor::reshape(const Shape& sizes) const {
  const Shape target = detail::infer_shape(raw(), sizes, "reshape");
  if (auto out = detail::try_reshape(raw(), target)) {
    return record_reshape("reshape", std::move(*out), *this);
  }
  return contiguous().reshape(target);
}

Tensor Tensor::flatten(int start_dim, int end_dim) const {
  if (dim() == 0) {
    return reshape({1});
  }
  start_dim = wrap_dim(start_dim, dim(), "flatten");
  end_dim = wrap_dim(end_dim, dim(), "flatten");
  check<ShapeError>(start_dim <= end_dim, "flatten: start_dim {} is after end_dim {}", start_dim, end_dim);
  Shape sizes;
  std::int64_t merged = 1;
  for (int i = 0; i < dim(); ++i) {
    if (i < start_dim || i > end_dim) {
      sizes.push_back(shape()[i]);
      continue;
    }
    merged *= shape()[i];
    if (i == end_dim) {
      sizes.push_back(merged);
    }
  }
  return reshape(sizes);
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  return record_view("transpose", detail::transpose(raw(), dim0, dim1), *this,
                     [dim0, dim1](const auto& g) { return transposed(g, dim0, dim1); });
}

Tensor Tensor::t() const {
  check<ShapeError>(dim() <= 2, "t: expected at most 2 dimensions, got {}; use transpose()", shape());
  return dim() < 2 ? view(shape()) : transpose(0, 1);
}

Tensor Tensor::permute(const Shape& order) const {
  View out = detail::permute(raw(), order);
  Shape back = order;
  for (int i = 0; i < order.ndim(); ++i) {
    back[wrap_dim(order[i], order.ndim(), "permute")] = i;
  }
  return record_view("permute", std::move(out), *this, [back](const auto& g) { return permuted(g, back); });
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  return record_part("narrow", detail::narrow(raw(), dim, start, length), *this,
                     [=](const View& whole) { return detail::narrow(whole, dim, start, length); });
}

Tensor Tensor::slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step) const {
  const std::int64_t size = this->size(dim);
  check<ShapeError>(step >= 1, "slice: the step must be at least 1, got {}", step);
  start = std::clamp<std::int64_t>(start < 0 ? start + size : start, 0, size);
  end = std::clamp<std::int64_t>(end < 0 ? end + size : end, start, size);
  const std::int64_t length = end > start ? (end - start - 1) / step + 1 : 0;
  return record_part("slice", detail::narrow(raw(), dim, start, length, step), *this,
                     [=](const View& whole) { return detail::narrow(whole, dim, start, length, step); });
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  return record_part("select", detail::select(raw(), dim, index), *this,
                     [=](const View& whole) { return detail::select(whole, dim, index); });
}

Tensor Tensor::squeeze(int dim) const { return record_reshape("squeeze", detail::squeeze(raw(), dim), *this); }

Tensor Tensor::squeeze() const {
  View out = raw();
  for (int i = out.sizes.ndim() - 1; i >= 0; --i) {
    out = detail::squeeze(out, i);
  }
  return record_reshape("squeeze", std::move(out), *this);
}

Tensor Tensor::unsqueeze(int dim) const { return record_reshape("unsqueeze", detail::unsqueeze(raw(), dim), *this); }

Tensor Tensor::expand(const Shape& sizes) const {
  return record("expand", detail::expand(raw(), sizes), {this}, [] {
    return [](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output());
      } else {
        const Destination to = g.destination(0);
        detail::sum_to(to.view, g.output(), to.accumulate);
      }
    };
  });
}

}  // namespace tandem::inline v0
