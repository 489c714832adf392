#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/memory.h>

// Selecting by index, and joining.

namespace tandem::inline v0 {

using namespace autograd;

Tensor Tensor::index_select(int dim, const Tensor& index) const {
  check<ShapeError>(this->dim() > 0, "index_select: a scalar has no dimension to select from");
  dim = wrap_dim(dim, this->dim(), "index_select");
  check<DTypeError>(index.dtype() == DType::i64, "index_select: the index must be i64, got {}", index.dtype());
  check<ShapeError>(index.dim() == 1, "index_select: the index must have one dimension, got {}", index.shape());
  check<DeviceError>(index.device() == device(), "index_select: the tensor is on {}, the index on {}", device(),
                     index.device());
  const View rows = detail::contiguous(index.raw());
  const auto* values = static_cast<const std::int64_t*>(rows.data());
  const std::int64_t size = shape()[dim];
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    check<ValueError>(values[i] >= 0 && values[i] < size, "index_select: index {} at position {} is outside [0, {})",
                      values[i], i, size);
  }
  const View in = detail::contiguous(raw());
  Shape sizes = in.sizes;
  sizes[dim] = rows.numel();
  View out = detail::empty_view(sizes, in.dtype, in.device());
  const AroundDim around(in.sizes, dim);
  kernels::launch(detail::context_of(out),
                  kernels::IndexSelect{.out = out.data(),
                                       .in = in.data(),
                                       .index = values,
                                       .outer = around.outer,
                                       .size = around.size,
                                       .count = rows.numel(),
                                       .inner_bytes = around.inner * static_cast<std::int64_t>(item_size(in.dtype))});
  return record("index_select", std::move(out), {this}, [&] {
    return [index = Saved(rows), around](Gradients& g) {
      const View grad = detail::contiguous(g.output());
      const View& positions = index.get(g);
      const Destination to = g.destination(0);
      if (to.accumulate == Accumulate::no) {
        detail::fill(to.view, 0);
      }
      kernels::launch(detail::context_of(to.view),
                      kernels::IndexAdd{.dtype = to.view.dtype,
                                        .out = to.view.data(),
                                        .in = grad.data(),
                                        .index = static_cast<const std::int64_t*>(positions.data()),
                                        .outer = around.outer,
                                        .size = around.size,
                                        .count = positions.numel(),
                                        .inner = around.inner});
    };
  });
}

namespace {

// `op` is the name that messages and the graph get: cat, or stack.
Tensor join(const char* op, const std::vector<Tensor>& tensors, int dim) {
  const View& first = tensors[0].raw();
  Shape sizes = first.sizes;
  std::vector<std::int64_t> starts;
  sizes[dim] = 0;
  bool recorded = false;
  for (const Tensor& tensor : tensors) {
    check_same_kind(op, tensors[0], tensor);
    Shape expected = tensor.shape();
    if (expected.ndim() == sizes.ndim()) {
      expected[dim] = sizes[dim];
    }
    check<ShapeError>(expected == sizes, "{}: {} and {} differ outside dimension {}", op, first.sizes, tensor.shape(),
                      dim);
    starts.push_back(sizes[dim]);
    sizes[dim] += tensor.shape()[dim];
    recorded = recorded || records({&tensor});
  }
  Tensor result(detail::empty_view(sizes, first.dtype, first.device()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const View& in = tensors[i].raw();
    detail::copy(detail::narrow(result.raw(), dim, starts[i], in.sizes[dim]), in);
  }
  if (recorded) {
    const auto closure = [dim, starts = std::move(starts)](Gradients& g) {
      for (std::uint32_t i = 0; i < starts.size(); ++i) {
        if (g.wants(i)) {
          g.deliver(i, detail::narrow(g.output(), dim, starts[i], g.input_sizes(i)[dim]), false);
        }
      }
    };
    core::Ref<Node> node(new ClosureNode(op, closure));
    node->connect(tensors);
    set_history(result, std::move(node));
  }
  return result;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  check<ShapeError>(!tensors.empty(), "cat: there is nothing to join");
  check<ShapeError>(tensors[0].dim() > 0, "cat: scalars cannot be joined; use stack()");
  return join("cat", tensors, wrap_dim(dim, tensors[0].dim(), "cat"));
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  check<ShapeError>(!tensors.empty(), "stack: there is nothing to join");
  dim = wrap_dim(dim, tensors[0].dim() + 1, "stack");
  std::vector<Tensor> rows;
  rows.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    check<ShapeError>(tensor.shape() == tensors[0].shape(), "stack: shapes {} and {} differ", tensors[0].shape(),
                      tensor.shape());
    rows.push_back(tensor.unsqueeze(dim));
  }
  return join("stack", rows, dim);
}

}  // namespace tandem::inline v0
