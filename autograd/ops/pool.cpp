#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/kernels/pool.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;
using kernels::PoolShape;

namespace {

using Numbers = std::array<std::int64_t, 2>;

constexpr std::int64_t kLargestNumber = std::numeric_limits<std::int32_t>::max();

Numbers numbers(Size2d size) { return {size.height, size.width}; }

// The arguments of a pooling; along a length, the height has a window of 1.
struct Windows {
  const char* op;
  int dims;  // 1 or 2
  Numbers size, stride;
  Numbers padding{0, 0};
  Numbers dilation{1, 1};
  bool ceil_mode = false;
};

Windows along_length(const char* op, std::int64_t size, std::optional<std::int64_t> stride, std::int64_t padding,
                     std::int64_t dilation, bool ceil_mode) {
  return {op, 1, {1, size}, {1, stride.value_or(size)}, {0, padding}, {1, dilation}, ceil_mode};
}

void check_input(const char* op, int dims, const Tensor& x) {
  check_floating(op, x);
  check<ShapeError>(x.dim() == dims + 1 || x.dim() == dims + 2, "{}the input must be {}, or without the batch, got {}",
                    core::MessagePrefix{op},
                    dims == 2 ? "[batch, channels, height, width]" : "[batch, channels, length]", x.shape());
}

// The sizes of the plane, and how many planes there are.
PoolShape planes_of(const char* op, int dims, const Tensor& x) {
  const Shape& sizes = x.shape();
  PoolShape shape{};
  shape.in = {dims == 2 ? sizes[sizes.ndim() - 2] : 1, sizes.back()};
  shape.planes = 1;
  for (int d = 0; d + dims < sizes.ndim(); ++d) {
    shape.planes *= sizes[d];
  }
  check<ShapeError>(shape.in_plane() > 0, "{}the input {} has no elements to choose from", core::MessagePrefix{op},
                    sizes);
  check<ShapeError>(shape.in_plane() <= std::numeric_limits<std::int32_t>::max(),
                    "{}a plane may have 2^31 - 1 elements, got {}", core::MessagePrefix{op}, sizes);
  return shape;
}

PoolShape shape_of(const Windows& of, const Tensor& x) {
  check_input(of.op, of.dims, x);
  const core::MessagePrefix prefix{of.op};
  PoolShape shape = planes_of(of.op, of.dims, x);
  shape.window = of.size;
  shape.stride = of.stride;
  shape.padding = of.padding;
  shape.dilation = of.dilation;
  for (std::size_t d = 0; d < 2; ++d) {
    check<ConfigError>(std::min({of.size[d], of.stride[d], of.dilation[d]}) >= 1 &&
                           std::max({of.size[d], of.stride[d], of.dilation[d]}) <= kLargestNumber,
                       "{}kernel_size, stride and dilation must be at least 1 and below 2^31, got {}, {} and {}",
                       prefix, of.size[d], of.stride[d], of.dilation[d]);
    check<ConfigError>(of.padding[d] >= 0 && of.padding[d] <= of.size[d] / 2,
                       "{}the padding must be 0 to half the kernel_size of {}, got {}", prefix, of.size[d],
                       of.padding[d]);
    const std::int64_t reach = of.dilation[d] * (of.size[d] - 1) + 1;
    const std::int64_t padded = shape.in[d] + 2 * of.padding[d];
    const std::int64_t room = padded - reach + (of.ceil_mode ? of.stride[d] - 1 : 0);
    check<ShapeError>(room >= 0, "{}a window of {} is larger than the padded input, {} = {} + 2 * {} (input {})",
                      prefix, reach, padded, shape.in[d], of.padding[d], x.shape());
    shape.out[d] = room / of.stride[d] + 1;
    if (of.ceil_mode && (shape.out[d] - 1) * of.stride[d] >= shape.in[d] + of.padding[d]) {
      --shape.out[d];  // the last window would begin behind the input
    }
    for (std::int64_t i = 0; i < shape.out[d]; ++i) {
      const PoolShape::Range range = shape.range(static_cast<int>(d), i);
      check<ShapeError>(range.begin < range.end, "{}window {} has no element inside the input {}", prefix, i,
                        x.shape());
    }
  }
  return shape;
}

PoolShape adaptive_shape(const char* op, const Tensor& x, Size2d output_size) {
  check_input(op, 2, x);
  check<ConfigError>(output_size.height >= 1 && output_size.width >= 1,
                     "{}the output_size must be at least 1, got ({}, {})", core::MessagePrefix{op}, output_size.height,
                     output_size.width);
  PoolShape shape = planes_of(op, 2, x);
  shape.adaptive = true;
  shape.out = numbers(output_size);
  return shape;
}

// The sizes of the result.
Shape pooled(const Shape& sizes, int dims, const PoolShape& shape) {
  Shape out = sizes;
  for (int d = 0; d < dims; ++d) {
    out[sizes.ndim() - dims + d] = shape.out[static_cast<std::size_t>(2 - dims + d)];
  }
  return out;
}

// The planes that lie side by side in images of this format.
std::int64_t inner_of(const View& in) { return in.is_channels_last() ? in.sizes[1] : 1; }

// The result, and the places as i32.
std::pair<Tensor, View> max_pool(const char* op, int dims, const Tensor& x, PoolShape shape) {
  const MemoryFormat format = x.raw().memory_format();
  const View in = detail::contiguous(x.raw(), format);
  shape.inner = inner_of(in);
  const Shape sizes = pooled(in.sizes, dims, shape);
  View out = detail::empty_view(sizes, in.dtype, in.device(), format);
  View places = detail::empty_view(sizes, DType::i32, in.device(), format);
  kernels::launch(detail::context_of(in), kernels::MaxPool{.dtype = in.dtype,
                                                           .shape = shape,
                                                           .in = in.data(),
                                                           .out = out.data(),
                                                           .places = static_cast<std::int32_t*>(places.data())});
  Tensor result = record(op, std::move(out), {&x}, [&] {
    return [places, shape, format](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor& grad = g.output();
        const std::int64_t area = shape.in[0] * shape.in[1];
        const std::int64_t planes = area == 0 ? 0 : g.input_sizes(0).numel() / area;
        const Tensor none = zeros({planes, area}, {.dtype = grad.dtype(), .device = grad.device()});
        const Tensor at = Tensor(places).to(DType::i64).reshape({planes, shape.out[0] * shape.out[1]});
        g.give(0, none.scatter_add(1, at, grad.reshape(at.shape())).reshape(g.input_sizes(0)));
      } else {
        const View grad = detail::contiguous(g.output(), format);
        const Destination to = g.destination(0, format);
        kernels::launch(detail::context_of(grad),
                        kernels::MaxPoolGrad{.dtype = grad.dtype,
                                             .accumulate = to.accumulate,
                                             .shape = shape,
                                             .grad = grad.data(),
                                             .places = static_cast<const std::int32_t*>(places.data()),
                                             .in_grad = to.view.data()});
      }
    };
  });
  return {std::move(result), std::move(places)};
}

Tensor avg_pool(const char* op, int dims, const Tensor& x, PoolShape shape, const kernels::Divisor& divisor);

void launch_avg_grad(const PoolShape& shape, const kernels::Divisor& divisor, const View& grad, const Destination& to) {
  kernels::launch(detail::context_of(grad), kernels::AvgPoolGrad{.dtype = grad.dtype,
                                                                 .accumulate = to.accumulate,
                                                                 .shape = shape,
                                                                 .divisor = divisor,
                                                                 .grad = grad.data(),
                                                                 .in_grad = to.view.data()});
}

// The gradient of an average pooling as an op, whose own gradient is the pooling.
Tensor avg_pool_grad(const char* op, int dims, const Tensor& grad, PoolShape shape, const kernels::Divisor& divisor,
                     const Shape& sizes) {
  shape.inner = 1;
  View out = detail::empty_view(sizes, grad.dtype(), grad.device());
  launch_avg_grad(shape, divisor, detail::contiguous(grad.raw()), {out, Accumulate::no});
  return record(op, std::move(out), {&grad}, [&] {
    return [op, dims, shape, divisor](auto& g) {
      const Tensor given(g.output());
      const Tensor pooled = avg_pool(op, dims, given, shape, divisor);
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, pooled);
      } else {
        g.deliver(0, pooled.raw(), false);
      }
    };
  });
}

Tensor avg_pool(const char* op, int dims, const Tensor& x, PoolShape shape, const kernels::Divisor& divisor) {
  const MemoryFormat format = x.raw().memory_format();
  const View in = detail::contiguous(x.raw(), format);
  shape.inner = inner_of(in);
  View out = detail::empty_view(pooled(in.sizes, dims, shape), in.dtype, in.device(), format);
  kernels::launch(
      detail::context_of(in),
      kernels::AvgPool{.dtype = in.dtype, .shape = shape, .divisor = divisor, .in = in.data(), .out = out.data()});
  return record(op, std::move(out), {&x}, [&] {
    return [op, dims, shape, divisor, format](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, avg_pool_grad(op, dims, g.output(), shape, divisor, g.input_sizes(0)));
      } else {
        launch_avg_grad(shape, divisor, detail::contiguous(g.output(), format), g.destination(0, format));
      }
    };
  });
}

Windows in_planes(const char* op, Size2d size, std::optional<Size2d> stride, Size2d padding, Size2d dilation,
                  bool ceil_mode) {
  return {op, 2, numbers(size), numbers(stride.value_or(size)), numbers(padding), numbers(dilation), ceil_mode};
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2d kernel_size, std::optional<Size2d> stride, Size2d padding, Size2d dilation,
                  bool ceil_mode) {
  const Windows of = in_planes("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode);
  return max_pool(of.op, 2, x, shape_of(of, x)).first;
}

std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2d kernel_size, std::optional<Size2d> stride,
                                                  Size2d padding, Size2d dilation, bool ceil_mode) {
  const Windows of = in_planes("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode);
  auto [result, places] = max_pool(of.op, 2, x, shape_of(of, x));
  return {std::move(result), Tensor(std::move(places)).to(DType::i64)};
}

Tensor max_pool1d(const Tensor& x, std::int64_t kernel_size, std::optional<std::int64_t> stride, std::int64_t padding,
                  std::int64_t dilation, bool ceil_mode) {
  const Windows of = along_length("max_pool1d", kernel_size, stride, padding, dilation, ceil_mode);
  return max_pool(of.op, 1, x, shape_of(of, x)).first;
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel_size, std::optional<Size2d> stride, Size2d padding, bool ceil_mode,
                  bool count_include_pad, std::optional<std::int64_t> divisor_override) {
  const Windows of = in_planes("avg_pool2d", kernel_size, stride, padding, 1, ceil_mode);
  check<ConfigError>(divisor_override.value_or(1) != 0, "{}the divisor_override must not be 0",
                     core::MessagePrefix{of.op});
  return avg_pool(of.op, 2, x, shape_of(of, x), {count_include_pad, divisor_override.value_or(0)});
}

Tensor avg_pool1d(const Tensor& x, std::int64_t kernel_size, std::optional<std::int64_t> stride, std::int64_t padding,
                  bool ceil_mode, bool count_include_pad) {
  const Windows of = along_length("avg_pool1d", kernel_size, stride, padding, 1, ceil_mode);
  return avg_pool(of.op, 1, x, shape_of(of, x), {count_include_pad, 0});
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output_size) {
  const char* const op = "adaptive_avg_pool2d";
  return avg_pool(op, 2, x, adaptive_shape(op, x, output_size), {false, 0});
}

Tensor adaptive_max_pool2d(const Tensor& x, Size2d output_size) {
  const char* const op = "adaptive_max_pool2d";
  return max_pool(op, 2, x, adaptive_shape(op, x, output_size)).first;
}

}  // namespace tandem::inline v0
