#include <tandem/autograd/ops/common.h>

#include <algorithm>
#include <vector>

#include <tandem/core/bad_value.h>
#include <tandem/kernels/gather.h>
#include <tandem/kernels/index.h>
#include <tandem/tensor/factories.h>

// Selection by index.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// Calls add(out, in), in f32 if the operands have 16 bits: many additions then round only once.
template <class Add>
void add_in_full(const View& out, const View& in, Add&& add) {
  if (!is_reduced_floating_point(out.dtype)) {
    return add(out, in);
  }
  const View wide_out = detail::empty_view(out.sizes, DType::f32, out.device());
  const View wide_in = detail::empty_view(in.sizes, DType::f32, in.device());
  detail::copy(wide_out, out);
  detail::copy(wide_in, in);
  add(wide_out, wide_in);
  detail::copy(out, wide_out);
}

}  // namespace

namespace autograd {

void check_in_range(const char* op, const View& index, std::int64_t end) {
  if (index.device().type == DeviceType::cuda) {
    return;  // the GPU kernels check while they run; a check here would have to wait for them
  }
  const auto* values = static_cast<const std::int64_t*>(index.data());
  detail::host_work(op, [=, count = index.numel()] {
    for (std::int64_t i = 0; i < count; ++i) {
      if (values[i] < 0 || values[i] >= end) [[unlikely]] {
        const core::BadValue bad{.position = i, .value = values[i], .end = end};
        fail<ValueError>("{}{}{}", core::MessagePrefix{op}, core::describe(bad), core::code_of(bad));
      }
    }
  });
}

void index_add_to(const View& out, const AroundDim& around, const View& index, const View& in, const char* op,
                  std::int64_t skip) {
  add_in_full(out, in, [&](const View& sums, const View& added) {
    const View dense = detail::contiguous(added);
    kernels::launch(detail::context_of(sums), kernels::IndexAdd{.dtype = sums.dtype,
                                                                .out = sums.data(),
                                                                .in = dense.data(),
                                                                .index = static_cast<const std::int64_t*>(index.data()),
                                                                .outer = around.outer,
                                                                .size = around.size,
                                                                .count = index.numel(),
                                                                .inner = around.inner,
                                                                .skip = skip,
                                                                .op = op});
  });
}

}  // namespace autograd

Tensor Tensor::index_select(int dim, const Tensor& index) const {
  check<ShapeError>(this->dim() > 0, "index_select: a scalar has no dimension to select from");
  dim = wrap_dim(dim, this->dim(), "index_select");
  check<DTypeError>(index.dtype() == DType::i64 || index.dtype() == DType::i32,
                    "index_select: the index must be i64 or i32, got {} [TDM-E307]", index.dtype());
  check<ShapeError>(index.dim() <= 1, "index_select: the index must have at most one dimension, got {}", index.shape());
  check<DeviceError>(index.device() == device(), "index_select: the tensor is on {}, the index on {} [TDM-E103]",
                     device(), index.device());
  const View rows = detail::contiguous(index.to(DType::i64).raw());
  const auto* values = static_cast<const std::int64_t*>(rows.data());
  const std::int64_t size = shape()[dim];
  check_in_range("index_select", rows, size);
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
                                       .inner_bytes = around.inner * static_cast<std::int64_t>(item_size(in.dtype)),
                                       .op = "index_select"});
  return record("index_select", std::move(out), {this}, [&] {
    return [index = Saved(rows), around, dim](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor& grad = g.output();
        Shape along = Shape::filled(grad.dim(), 1);
        along[dim] = grad.size(dim);
        const Tensor none = zeros(g.input_sizes(0), {.dtype = grad.dtype(), .device = grad.device()});
        g.give(0, none.scatter_add(dim, g.constant(index).reshape(along).expand(grad.shape()), grad));
      } else {
        index_add_to(g.sum(0), around, index.get(g), g.output(), "index_select");
      }
    };
  });
}

namespace {

// A dense copy of `index` for a gather or scatter along `dim` of `target`, after all checks.
View checked_index(const char* op, const Tensor& target, int dim, const Tensor& index) {
  check_same_device(op, target, index);
  check<DTypeError>(index.dtype() == DType::i64, "{}: the index must be i64, got {} [TDM-E307]", op, index.dtype());
  const Shape& sizes = target.shape();
  const Shape& at = index.shape();
  bool fits = at.ndim() == sizes.ndim();
  for (int d = 0; fits && d < at.ndim(); ++d) {
    fits = d == dim || at[d] <= sizes[d];
  }
  check<ShapeError>(fits,
                    "{}: the index {} must have as many dimensions as the tensor {}, none larger but dimension {}", op,
                    at, sizes, dim);
  const View dense = detail::contiguous(index.raw());
  check_in_range(op, dense, sizes.empty() ? 1 : sizes[dim]);
  return dense;
}

View gather_from(const View& in, int dim, const View& index, const char* op) {
  View out = detail::empty_view(index.sizes, in.dtype, in.device());
  const bool scalar = in.sizes.empty();
  kernels::Gather kernel{.item_size = static_cast<std::int64_t>(item_size(in.dtype)),
                         .dim_stride = scalar ? 0 : in.strides[dim],
                         .dim_size = scalar ? 1 : in.sizes[dim],
                         .op = op,
                         .loop = detail::loop_over(index.sizes),
                         .out = detail::operand(out, out.sizes),
                         .index = detail::operand(index, index.sizes),
                         .in = {}};
  kernel.in.data = in.data();
  for (int d = 0; d < in.sizes.ndim(); ++d) {
    kernel.in.strides[d] = d == dim ? 0 : in.strides[d];
  }
  kernels::simplify(kernel.loop, {&kernel.out, &kernel.index, &kernel.in});
  if (kernel.loop.numel() > 0) {
    kernels::launch(detail::context_of(out), kernel);
  }
  return out;
}

}  // namespace

namespace autograd {

void scatter_add_to(const View& out, int dim, const View& index, const View& source, const char* op) {
  if (is_reduced_floating_point(out.dtype)) {
    return add_in_full(out, source,
                       [&](const View& to, const View& from) { scatter_add_to(to, dim, index, from, op); });
  }
  const int ndim = out.sizes.ndim();
  kernels::ScatterAdd kernel{.dtype = out.dtype,
                             .dim_stride = ndim == 0 ? 0 : out.strides[dim],
                             .dim_size = ndim == 0 ? 1 : out.sizes[dim],
                             .op = op,
                             .loop = {},
                             .out = {.data = out.data()},
                             .index = {.data = index.data()},
                             .in = {.data = source.data()}};
  // The indexed dimension comes last.
  kernel.loop.ndim = ndim;
  for (int at = 0, d = 0; d < ndim; ++d) {
    const int position = d == dim ? ndim - 1 : at++;
    kernel.loop.sizes[position] = index.sizes[d];
    kernel.out.strides[position] = d == dim ? 0 : out.strides[d];
    kernel.index.strides[position] = index.strides[d];
    kernel.in.strides[position] = source.strides[d];
  }
  if (ndim == 0) {
    kernel.loop = {.ndim = 1, .sizes = {1}};
  }
  if (kernel.loop.numel() > 0) {
    kernels::launch(detail::context_of(out), kernel);
  }
}

}  // namespace autograd

Tensor Tensor::gather(int dim, const Tensor& index) const {
  dim = wrap_dim(dim, std::max(1, this->dim()), "gather");
  const View at = checked_index("gather", *this, dim, index);
  return record("gather", gather_from(raw(), dim, at, "gather"), {this}, [&] {
    return [index = Saved(at), dim](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor none = zeros(g.input_sizes(0), {.dtype = g.output().dtype(), .device = g.output().device()});
        g.give(0, none.scatter_add(dim, g.constant(index), g.output()));
      } else {
        scatter_add_to(g.sum(0), dim, index.get(g), g.output(), "gather");
      }
    };
  });
}

Tensor Tensor::scatter_add(int dim, const Tensor& index, const Tensor& source) const {
  dim = wrap_dim(dim, std::max(1, this->dim()), "scatter_add");
  check_same_kind("scatter_add", *this, source);
  check<DTypeError>(dtype() != DType::boolean, "scatter_add: not defined for bool; convert with .to(DType::i64)");
  bool fits = source.dim() == index.dim();
  for (int d = 0; fits && d < index.dim(); ++d) {
    fits = index.shape()[d] <= source.shape()[d];
  }
  check<ShapeError>(fits, "scatter_add: the index {} must not be larger than the source {} in any dimension",
                    index.shape(), source.shape());
  const View at = checked_index("scatter_add", *this, dim, index);
  View out = detail::empty_view(shape(), dtype(), device());
  detail::copy(out, raw());
  scatter_add_to(out, dim, at, source.raw(), "scatter_add");
  return record("scatter_add", std::move(out), {this, &source}, [&] {
    return [index = Saved(at), dim](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output());
        if (g.wants(1)) {
          const Tensor where_to = g.constant(index);
          Tensor part = g.output().gather(dim, where_to);
          for (int d = 0; d < part.dim(); ++d) {  // the source may be larger than the index
            const std::int64_t missing = g.input_sizes(1)[d] - part.size(d);
            if (missing > 0) {
              Shape rest = part.shape();
              rest[d] = missing;
              part = cat({part, zeros(rest, {.dtype = part.dtype(), .device = part.device()})}, d);
            }
          }
          g.give(1, part);
        }
        return;
      } else {
        if (g.wants(0)) {
          g.deliver(0, g.output(), false);
        }
        if (g.wants(1)) {
          const View part = gather_from(g.output(), dim, index.get(g), "scatter_add");
          View used = g.sum(1);
          used.sizes = part.sizes;
          detail::copy(used, part, Accumulate::yes);
        }
      }
    };
  });
}

Tensor Tensor::nonzero() const {
  detail::note_host_access("nonzero");
  // The hits are counted on the host, because the size of the result depends on the count.
  const Tensor flags = *this != 0;
  const View hits = detail::contiguous((device().type == DeviceType::cuda ? flags.to(Device()) : flags).raw());
  const bool* hit = static_cast<const bool*>(hits.data());
  std::vector<std::int64_t> positions;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < hits.numel(); ++i) {
    if (!hit[i]) {
      continue;
    }
    ++count;
    std::int64_t rest = i;
    positions.resize(positions.size() + static_cast<std::size_t>(dim()));
    for (int d = dim() - 1; d >= 0; --d) {
      positions[positions.size() - static_cast<std::size_t>(dim() - d)] = rest % shape()[d];
      rest /= shape()[d];
    }
  }
  return from_data(positions, {count, dim()}, {.device = Device()}).to(device());
}

Tensor Tensor::masked_select(const Tensor& mask) const {
  detail::note_host_access("masked_select");
  check<DTypeError>(mask.dtype() == DType::boolean,
                    "masked_select: the mask must be bool, got {}; compare it: mask != 0", mask.dtype());
  check_same_device("masked_select", *this, mask);
  const Shape sizes = broadcast_shapes(shape(), mask.shape(), "masked_select");
  const Tensor chosen = mask.expand(sizes).reshape({-1}).nonzero().reshape({-1});
  return expand(sizes).reshape({-1}).index_select(0, chosen);
}

}  // namespace tandem::inline v0
