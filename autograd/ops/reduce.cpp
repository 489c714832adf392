#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/reduce.h>
#include <tandem/tensor/factories.h>

// Reductions.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The reduced dimensions, and the shape of the result with and without them.
struct Plan {
  bool reduced[kMaxDims] = {};
  Shape kept_as_one;
  Shape result;
  std::int64_t count = 1;  // elements per result
};

Plan plan_for(const char* op, const Shape& sizes, const Shape& dims, bool keepdim) {
  Plan plan;
  for (const std::int64_t dim : dims) {
    const int d = wrap_dim(dim, sizes.ndim(), op);
    check<ShapeError>(!plan.reduced[d], "{}: dimension {} appears twice in {}", op, d, dims);
    plan.reduced[d] = true;
  }
  for (int d = 0; d < sizes.ndim(); ++d) {
    plan.kept_as_one.push_back(plan.reduced[d] ? 1 : sizes[d]);
    plan.count *= plan.reduced[d] ? sizes[d] : 1;
    if (!plan.reduced[d] || keepdim) {
      plan.result.push_back(plan.reduced[d] ? 1 : sizes[d]);
    }
  }
  return plan;
}

Shape all_dims(int ndim) {
  Shape dims;
  for (int d = 0; d < ndim; ++d) {
    dims.push_back(d);
  }
  return dims;
}

kernels::Reduce kernel_for(kernels::ReduceOp op, const View& in, const View& out, const Plan& plan) {
  kernels::Reduce kernel{.op = op, .dtype = in.dtype, .kept = {}, .reduced = {}, .out = {}, .in = {}, .in_reduced = {}};
  kernel.in.data = kernel.in_reduced.data = in.data();
  kernel.out.data = out.data();
  const Shape dense = contiguous_strides(plan.kept_as_one);
  for (int d = 0; d < in.sizes.ndim(); ++d) {
    if (plan.reduced[d]) {
      const int at = kernel.reduced.ndim++;
      kernel.reduced.sizes[at] = in.sizes[d];
      kernel.in_reduced.strides[at] = in.strides[d];
    } else {
      const int at = kernel.kept.ndim++;
      kernel.kept.sizes[at] = in.sizes[d];
      kernel.in.strides[at] = in.strides[d];
      kernel.out.strides[at] = dense[d];
    }
  }
  kernels::simplify(kernel.kept, {&kernel.out, &kernel.in});
  kernels::simplify(kernel.reduced, {&kernel.in_reduced});
  return kernel;
}

// Sums of integers and bools are i64, as in PyTorch; means require floating point.
Tensor sum_like(const char* op, const Tensor& x, const Shape& dims, bool keepdim, bool mean) {
  if (!mean && raises({&x})) [[unlikely]] {
    return sum_like(op, raised(x), dims, keepdim, mean);
  }
  check<DTypeError>(!mean || is_floating_point(x.dtype()),
                    "{}: needs floating point, got {}; convert with .to(DType::f32)", op, x.dtype());
  const View& in = x.raw();
  const Plan plan = plan_for(op, in.sizes, dims.empty() ? all_dims(x.dim()) : dims, keepdim);
  View out = detail::empty_view(plan.result, is_floating_point(in.dtype) ? in.dtype : DType::i64, in.device());
  const double scale = mean ? 1.0 / static_cast<double>(plan.count) : 1.0;
  if (out.numel() > 0) {
    kernels::Reduce kernel = kernel_for(kernels::ReduceOp::sum, in, out, plan);
    kernel.scale = mean && plan.count == 0 ? __builtin_nan("") : scale;  // as in PyTorch
    kernels::launch(detail::context_of(out), kernel);
  }
  return record(op, std::move(out), {&x}, [&] {
    return [shape = plan.kept_as_one, scale](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, (g.output().reshape(shape) * scale).expand(g.input_sizes(0)));
      } else {
        View grad = g.output();
        grad = *detail::try_reshape(detail::contiguous(grad), shape);
        const Destination to = g.destination(0);
        detail::pointwise(PointwiseOp::mul_scalar, to.view, {&grad}, {scale}, to.accumulate);
      }
    };
  });
}

// For each result, the number of nonzero elements.
struct Count {
  Tensor nonzero;
  std::int64_t of;
};

Count count_nonzero(const char* op, const Tensor& x, const Shape& dims, bool keepdim) {
  const View& in = x.raw();
  const Plan plan = plan_for(op, in.sizes, dims.empty() ? all_dims(x.dim()) : dims, keepdim);
  View out = detail::empty_view(plan.result, DType::i64, in.device());
  if (out.numel() > 0) {
    kernels::launch(detail::context_of(out), kernel_for(kernels::ReduceOp::nonzero, in, out, plan));
  }
  return {Tensor(std::move(out)), plan.count};
}

struct Extreme {
  View values;
  View indices;  // i64; undefined unless requested
  Plan plan;
};

// `positions` requires one dimension, or all dimensions, which then count as one.
Extreme find_extreme(const char* op, const Tensor& x, const Shape& dims, bool keepdim, bool max, bool positions) {
  const View in = dims.ndim() == x.dim() ? detail::contiguous(x.raw()) : x.raw();  // row-major positions
  Extreme result{.values = {}, .indices = {}, .plan = plan_for(op, in.sizes, dims, keepdim)};
  const Plan& plan = result.plan;
  check<ShapeError>(plan.count > 0, "{}: {} has no elements to choose from", op, in.sizes);
  result.values = detail::empty_view(plan.result, in.dtype, in.device());
  kernels::Reduce kernel = kernel_for(max ? kernels::ReduceOp::max : kernels::ReduceOp::min, in, result.values, plan);
  if (positions) {
    result.indices = detail::empty_view(plan.result, DType::i64, in.device());
    kernel.indices = static_cast<std::int64_t*>(result.indices.data());
  }
  if (result.values.numel() > 0) {
    kernels::launch(detail::context_of(result.values), kernel);
  }
  return result;
}

// The first extreme element along a dimension gets the gradient.
Tensor extreme_along(const char* op, const Tensor& x, std::int64_t dim, bool keepdim, bool max) {
  const int d = wrap_dim(dim, x.dim(), op);
  if (x.dim() == 0) {
    return x.clone();
  }
  Extreme found = find_extreme(op, x, {d}, keepdim, max, true);
  return record(op, found.values, {&x}, [&] {
    return [indices = Saved(found.indices), d, kept = found.plan.kept_as_one](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor none = zeros(g.input_sizes(0), {.dtype = g.output().dtype(), .device = g.output().device()});
        g.give(0, none.scatter_add(d, g.constant(indices).reshape(kept), g.output().reshape(kept)));
      } else {
        const auto with_dim = [&](const View& view) { return *detail::try_reshape(detail::contiguous(view), kept); };
        scatter_add_to(g.sum(0), d, with_dim(indices.get(g)), with_dim(g.output()));
      }
    };
  });
}

// Equal extreme elements share the gradient if no position is involved, as in PyTorch.
Tensor extreme_value(const char* op, const Tensor& x, const Shape& dims, bool keepdim, bool max) {
  Extreme found = find_extreme(op, x, dims.empty() ? all_dims(x.dim()) : dims, keepdim, max, false);
  return record(op, found.values, {&x}, [&] {
    return [x = Saved(x), y = Saved(found.values), kept = found.plan.kept_as_one](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor hits = (g.constant(x) == g.constant(y).reshape(kept)).to(g.output().dtype());
        g.give(0, hits * (g.output().reshape(kept) / sum_to_size(hits, kept)));
      } else {
        const View& in = x.get(g);
        const View extreme = *detail::try_reshape(y.get(g), kept);
        const View hits = detail::empty_view(in.sizes, in.dtype, in.device());
        detail::pointwise(PointwiseOp::equal, hits, {&in, &extreme});
        const View count = detail::empty_view(kept, in.dtype, in.device());
        detail::sum_to(count, hits, Accumulate::no);
        const View share = detail::empty_view(kept, in.dtype, in.device());
        const View grad = *detail::try_reshape(detail::contiguous(g.output()), kept);
        detail::pointwise(PointwiseOp::div, share, {&grad, &count});
        const Destination to = g.destination(0);
        detail::pointwise(PointwiseOp::mul, to.view, {&hits, &share}, {}, to.accumulate);
      }
    };
  });
}

Tensor extreme_position(const char* op, const Tensor& x, std::optional<std::int64_t> dim, bool keepdim, bool max) {
  Shape dims = all_dims(x.dim());
  if (dim.has_value()) {
    const int d = wrap_dim(*dim, x.dim(), op);
    dims = x.dim() == 0 ? Shape{} : Shape{d};
  }
  return Tensor(find_extreme(op, x, dims, keepdim, max, true).indices);
}

}  // namespace

Tensor Tensor::sum() const { return sum_like("sum", *this, {}, false, false); }
Tensor Tensor::sum(const Shape& dims, bool keepdim) const { return sum_like("sum", *this, dims, keepdim, false); }
Tensor Tensor::mean() const { return sum_like("mean", *this, {}, false, true); }
Tensor Tensor::mean(const Shape& dims, bool keepdim) const { return sum_like("mean", *this, dims, keepdim, true); }

Tensor Tensor::any(const Shape& dims, bool keepdim) const {
  return count_nonzero("any", *this, dims, keepdim).nonzero != 0;
}
Tensor Tensor::all(const Shape& dims, bool keepdim) const {
  const Count count = count_nonzero("all", *this, dims, keepdim);
  return count.nonzero == count.of;
}

Tensor Tensor::amax(const Shape& dims, bool keepdim) const { return extreme_value("amax", *this, dims, keepdim, true); }
Tensor Tensor::amin(const Shape& dims, bool keepdim) const {
  return extreme_value("amin", *this, dims, keepdim, false);
}
Tensor Tensor::max_along(std::int64_t dim, bool keepdim) const {
  return extreme_along("max", *this, dim, keepdim, true);
}
Tensor Tensor::min_along(std::int64_t dim, bool keepdim) const {
  return extreme_along("min", *this, dim, keepdim, false);
}

Tensor Tensor::argmax(std::optional<std::int64_t> dim, bool keepdim) const {
  return extreme_position("argmax", *this, dim, keepdim, true);
}
Tensor Tensor::argmin(std::optional<std::int64_t> dim, bool keepdim) const {
  return extreme_position("argmin", *this, dim, keepdim, false);
}

}  // namespace tandem::inline v0
