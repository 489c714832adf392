#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/kernels/conv.h>

namespace tandem::inline v0 {

using namespace autograd;
using kernels::ConvShape;

std::string to_string(Size2d size) { return fmt::format("({}, {})", size.height, size.width); }

ConvPadding::ConvPadding(std::string_view name) : size_(0), is_same_(name == "same") {
  check<ConfigError>(is_same_ || name == "valid", "padding: expected numbers, \"same\" or \"valid\", got \"{}\"", name);
}

namespace {

// The arguments of a convolution: along (height, width), or along a length, which has a height of 1. A transposed one
// has the gradient of a convolution's input as its result.
struct Arguments {
  const char* op;
  int dims;  // 1 or 2
  bool transposed;
  std::array<std::int64_t, 2> stride, dilation;
  ConvPadding padding;
  std::array<std::int64_t, 2> output_padding;
  std::int64_t groups;
  bool relu = false;  // follows, unless transposed
};

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

void check_numbers(const Arguments& of) {
  const core::MessagePrefix prefix{of.op};
  const Size2d padding = of.padding.size();
  for (std::size_t d = 0; d < 2; ++d) {
    check<ConfigError>(
        of.stride[d] >= 1 && of.dilation[d] >= 1 && of.stride[d] <= kLargest && of.dilation[d] <= kLargest,
        "{}stride and dilation must be at least 1 and below 2^31, got {} and {}", prefix, of.stride[d], of.dilation[d]);
    check<ConfigError>(of.output_padding[d] == 0 ||
                           (of.output_padding[d] > 0 && of.output_padding[d] < std::max(of.stride[d], of.dilation[d])),
                       "{}the output_padding must be less than stride or dilation, {} and {}, got {}", prefix,
                       of.stride[d], of.dilation[d], of.output_padding[d]);
  }
  check<ConfigError>(
      std::min(padding.height, padding.width) >= 0 && std::max(padding.height, padding.width) <= kLargest,
      "{}the padding must not be negative, and below 2^31, got {}", prefix, to_string(padding));
  check<ConfigError>(of.groups >= 1, "{}expected at least one group, got {}", prefix, of.groups);
  check<ConfigError>(!of.padding.is_same() || (of.stride[0] == 1 && of.stride[1] == 1),
                     "{}padding \"same\" needs a stride of 1; give the padding as numbers", prefix);
}

void check_tensors(const Arguments& of, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const core::MessagePrefix prefix{of.op};
  const Shape& in = x.shape();
  const Shape& w = weight.shape();
  const char* const sizes = of.dims == 2 ? "height, width" : "length";
  check<ShapeError>(w.ndim() == of.dims + 2, "{}the weight must be [{}, {}], got {}", prefix,
                    of.transposed ? "in, out / groups" : "out, in / groups", sizes, w);
  check<ShapeError>(in.ndim() == of.dims + 2 || in.ndim() == of.dims + 1,
                    "{}the input must be [batch, channels, {}], or without the batch, got {}", prefix, sizes, in);
  check<DeviceError>(x.device() == weight.device(),
                     "{}input is on {}, weight on {}. Move the input: x.to(\"{}\") [TDM-E103]", prefix, x.device(),
                     weight.device(), weight.device());
  check<DTypeError>(x.dtype() == weight.dtype(),
                    "{}input is {}, weight {}. Convert the input: x.to(DType::{}) [TDM-E102]", prefix, x.dtype(),
                    weight.dtype(), weight.dtype());
  check_floating(of.op, x);
  check<ShapeError>(w[0] % of.groups == 0, "{}{} channels cannot be divided into {} groups (weight {})", prefix, w[0],
                    of.groups, w);
  const std::int64_t channels = in[in.ndim() - of.dims - 1];
  const std::int64_t expected = of.transposed ? w[0] : w[1] * of.groups;
  if (channels != expected) [[unlikely]] {
    const bool is_last = in.back() == expected && in.ndim() == of.dims + 2;
    fail<ShapeError>("{}input {} has {} channel{}, the weight {} with {} group{} expects {}{}", prefix, in, channels,
                     channels == 1 ? "" : "s", w, of.groups, of.groups == 1 ? "" : "s", expected,
                     !is_last       ? ""
                     : of.dims == 2 ? ". Channels seem to be last: x.permute({0, 3, 1, 2})"
                                    : ". Channels seem to be last: x.transpose(1, 2)");
  }
  if (bias.defined()) {
    const std::int64_t results = of.transposed ? w[1] * of.groups : w[0];
    check_same_kind(of.op, weight, bias);
    check<ShapeError>(bias.shape() == Shape{results}, "{}bias {} does not fit the weight {}: expected [{}]", prefix,
                      bias.shape(), w, results);
  }
}

// The convolution of x and weight, views [batch, channels, height, width] and [.., .., height, width].
ConvShape shape_of(const Arguments& of, const Shape& in, const Shape& weight) {
  const core::MessagePrefix prefix{of.op};
  ConvShape shape{.batch = in[0],
                  .groups = of.groups,
                  .in_channels = weight[1],
                  .out_channels = weight[0] / of.groups,
                  .in = {in[2], in[3]},
                  .out = {in[2], in[3]},
                  .window = {weight[2], weight[3]},
                  .stride = of.stride,
                  .padding = {of.padding.size().height, of.padding.size().width},
                  .dilation = of.dilation};
  if (of.dims == 1) {
    shape.padding[0] = 0;
  }
  for (std::size_t d = 0; d < 2; ++d) {
    check<ShapeError>(shape.window[d] >= 1, "{}the window must have at least one element, got the weight {}", prefix,
                      weight);
    const std::int64_t reach = shape.dilation[d] * (shape.window[d] - 1) + 1;
    if (of.transposed) {
      shape.in[d] = (shape.out[d] - 1) * shape.stride[d] - 2 * shape.padding[d] + reach + of.output_padding[d];
      check<ShapeError>(shape.in[d] >= 1, "{}the result would have {} elements along a dimension (input {}, weight {})",
                        prefix, shape.in[d], in, weight);
    } else if (of.padding.is_same()) {
      shape.padding[d] = (reach - 1) / 2;
    } else {
      const std::int64_t padded = shape.in[d] + 2 * shape.padding[d];
      check<ShapeError>(reach <= padded,
                        "{}a window of {} is larger than the padded input, {} = {} + 2 * {} (input {})", prefix, reach,
                        padded, shape.in[d], shape.padding[d], in);
      shape.out[d] = (padded - reach) / shape.stride[d] + 1;
    }
  }
  return shape;
}

// Saves a view that the gradient of `input` needs.
Saved saved_if(const Tensor& input, const View& view) { return input.requires_grad() ? Saved(view) : Saved(); }

// With a batch, and with a height; four dimensions may keep the format.
View as_images(const View& view, int dims, bool batched, MemoryFormat format) {
  if (view.sizes.ndim() == 4) {
    return detail::contiguous(view, format);
  }
  Shape sizes;
  if (!batched) {
    sizes.push_back(1);
  }
  for (int d = 0; d < view.sizes.ndim(); ++d) {
    if (dims == 1 && d + 1 == view.sizes.ndim()) {
      sizes.push_back(1);
    }
    sizes.push_back(view.sizes[d]);
  }
  return *detail::try_reshape(detail::contiguous(view), sizes);
}

// The views of a kernel have one memory format.
template <bool relu = false>
void launch_conv(const ConvShape& shape, const View& in, const View& weight, const void* bias, const View& out,
                 Accumulate accumulate, MemoryFormat format) {
  kernels::launch(detail::context_of(in), kernels::Conv{.dtype = in.dtype,
                                                        .accumulate = accumulate,
                                                        .shape = shape,
                                                        .in = in.data(),
                                                        .weight = weight.data(),
                                                        .bias = bias,
                                                        .out = out.data(),
                                                        .relu = relu,
                                                        .format = format});
}

void launch_in_grad(const ConvShape& shape, const View& grad, const View& weight, const void* bias, const View& in_grad,
                    Accumulate accumulate, MemoryFormat format) {
  kernels::launch(detail::context_of(grad), kernels::ConvInGrad{.dtype = grad.dtype,
                                                                .accumulate = accumulate,
                                                                .shape = shape,
                                                                .grad = grad.data(),
                                                                .weight = weight.data(),
                                                                .bias = bias,
                                                                .in_grad = in_grad.data(),
                                                                .format = format});
}

void launch_weight_grad(const ConvShape& shape, const View& grad, const View& in, const View& weight_grad,
                        Accumulate accumulate, MemoryFormat format) {
  kernels::launch(detail::context_of(grad), kernels::ConvWeightGrad{.dtype = grad.dtype,
                                                                    .accumulate = accumulate,
                                                                    .shape = shape,
                                                                    .grad = grad.data(),
                                                                    .in = in.data(),
                                                                    .weight_grad = weight_grad.data(),
                                                                    .format = format});
}

// A weight's own gradient is contiguous, whatever the format of the images. Filters with one channel, or one element,
// lie in both formats.
void launch_weight_grad_to(const Destination& to, const ConvShape& shape, const View& grad, const View& in,
                           MemoryFormat format) {
  if (to.view.is_dense(format)) {
    launch_weight_grad(shape, grad, in, to.view, to.accumulate, format);
    return;
  }
  const View apart = detail::empty_view(to.view.sizes, to.view.dtype, to.view.device(), format);
  launch_weight_grad(shape, grad, in, apart, Accumulate::no, format);
  detail::copy(to.view, apart, to.accumulate);
}

// A convolution relates three tensors: the image, the weight and the result. Each is linear in two others, and so are
// the gradients.
enum class Side : std::uint8_t { image, weight, result };

Shape sizes_of(Side side, const ConvShape& shape) {
  switch (side) {
    case Side::image: return {shape.batch, shape.groups * shape.in_channels, shape.in[0], shape.in[1]};
    case Side::weight: return {shape.groups * shape.out_channels, shape.in_channels, shape.window[0], shape.window[1]};
    case Side::result: break;
  }
  return {shape.batch, shape.groups * shape.out_channels, shape.out[0], shape.out[1]};
}

// The operands from which a side is computed, in the order of the kernels.
Side first_of(Side side) { return side == Side::result ? Side::image : Side::result; }
Side second_of(Side side) { return side == Side::weight ? Side::image : Side::weight; }

// A convolution computes `side` from the other two, a and b, with gradients of any order.
Tensor side_of(Side side, const ConvShape& shape, const Tensor& a, const Tensor& b) {
  const Side of_a = first_of(side);
  const Side of_b = second_of(side);
  const View first = detail::contiguous(a.reshape(sizes_of(of_a, shape)).raw());
  const View second = detail::contiguous(b.reshape(sizes_of(of_b, shape)).raw());
  View out = detail::empty_view(sizes_of(side, shape), first.dtype, first.device());
  const auto launch = [shape](Side to, const View& x, const View& y, const View& result, Accumulate accumulate) {
    constexpr MemoryFormat kFormat = MemoryFormat::contiguous;
    if (to == Side::weight) {
      launch_weight_grad(shape, x, y, result, accumulate, kFormat);
    } else {
      (to == Side::image ? launch_in_grad : launch_conv<>)(shape, x, y, nullptr, result, accumulate, kFormat);
    }
  };
  launch(side, first, second, out, Accumulate::no);
  return record("conv_grad", std::move(out), {&a, &b}, [&] {
    return [x = Saved(first), y = Saved(second), side, of_a, of_b, shape, launch](auto& g) {
      const auto in_order = [side](Side to, const auto& grad_of_side, const auto& other) {
        return first_of(to) == side ? std::pair(grad_of_side, other) : std::pair(other, grad_of_side);
      };
      if constexpr (is_graph<decltype(g)>) {
        if (g.wants(0)) {
          const auto [p, q] = in_order(of_a, g.output(), g.input(1, y));
          g.give(0, side_of(of_a, shape, p, q).reshape(g.input_sizes(0)));
        }
        if (g.wants(1)) {
          const auto [p, q] = in_order(of_b, g.output(), g.input(0, x));
          g.give(1, side_of(of_b, shape, p, q).reshape(g.input_sizes(1)));
        }
      } else {
        const View grad = detail::contiguous(g.output());
        if (g.wants(0)) {
          const auto [p, q] = in_order(of_a, grad, y.get(g));
          const Destination to = g.destination(0);
          launch(of_a, p, q, to.view, to.accumulate);
        }
        if (g.wants(1)) {
          const auto [p, q] = in_order(of_b, grad, x.get(g));
          const Destination to = g.destination(1);
          launch(of_b, p, q, to.view, to.accumulate);
        }
      }
    };
  });
}

// The gradient of a sum from that of `y`, the ReLU's result.
View without_relu(Gradients& g, const View& grad, const Saved& y) {
  View masked = detail::empty_like(grad);
  detail::pointwise(PointwiseOp::relu_grad, masked, {&grad, &y.get(g)});
  return masked;
}

// The gradient of the weight, from that of the result and from the input. A transposed convolution exchanges these two.
Tensor weight_gradient(bool transposed, const ConvShape& shape, const Tensor& grad, const Tensor& in) {
  return transposed ? side_of(Side::weight, shape, in, grad) : side_of(Side::weight, shape, grad, in);
}

// A convolution of a parameter in f32, on a CPU.
bool on_cpu_in_f32(const Tensor& x, const Tensor& weight) {
  return x.defined() && weight.defined() && x.device().type == DeviceType::cpu && weight.dtype() == DType::f32;
}

Tensor convolve(const Arguments& of, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (lowers({&x, &weight, &bias})) [[unlikely]] {
    // CPUs widen 16-bit images to multiply them, so that f32 is faster there: docs/mixed-precision.md.
    if (!on_cpu_in_f32(x, weight)) {
      return convolve(of, lowered(x), lowered(weight), lowered(bias));
    }
    if (raises({&x, &bias})) {
      return convolve(of, raised(x), weight, raised(bias));
    }
  }
  check_numbers(of);
  check_tensors(of, x, weight, bias);
  const bool batched = x.dim() == of.dims + 2;
  const MemoryFormat format = x.raw().memory_format();
  const View in = as_images(x.raw(), of.dims, batched, format);
  const View w = as_images(weight.raw(), of.dims, true, format);
  const View shift = dense(bias);
  const ConvShape shape = shape_of(of, in.sizes, w.sizes);
  const bool transposed = of.transposed;
  const std::int64_t channels = shape.groups * (transposed ? shape.in_channels : shape.out_channels);
  const std::array<std::int64_t, 2>& plane = transposed ? shape.in : shape.out;
  Shape sizes;
  if (batched) {
    sizes.push_back(shape.batch);
  }
  sizes.push_back(channels);
  if (of.dims == 2) {
    sizes.push_back(plane[0]);
  }
  sizes.push_back(plane[1]);
  View out = detail::empty_view(sizes, in.dtype, in.device(), format);
  const auto launch = transposed ? launch_in_grad : of.relu ? launch_conv<true> : launch_conv<>;
  launch(shape, in, w, data_of(shift), out, Accumulate::no, format);
  const char* const op = of.relu ? (of.dims == 1 ? "conv1d_relu" : "conv2d_relu") : of.op;
  Tensor result = record(op, out, {&x, &weight, &bias}, [&] {
    return BySample{[in = saved_if(weight, in), w = saved_if(x, w), y = of.relu ? Saved(out) : Saved(), relu = of.relu,
                     shape, transposed, channels, dims = of.dims, format](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        const Tensor grad = relu ? relu_gradient(g.output(), g.result(y)) : g.output();
        if (g.wants(0)) {
          const Side side = transposed ? Side::result : Side::image;
          g.give(0, side_of(side, shape, grad, g.input(1, w)).reshape(g.input_sizes(0)));
        }
        if (g.wants(1)) {
          g.give(1, weight_gradient(transposed, shape, grad, g.input(0, in)).reshape(g.input_sizes(1)));
        }
        if (g.wants(2)) {
          Shape per_channel = Shape::filled(dims + 1, 1);
          per_channel[0] = channels;
          g.give(2, sum_to_size(grad, per_channel).reshape({channels}));
        }
      } else if constexpr (is_samples<decltype(g)>) {
        const Tensor grad = relu ? relu_gradient(g.output(), g.constant(y)) : g.output();
        g.require_batch(shape.batch);
        if (g.wants(1)) {
          const Tensor other = g.constant(in);
          ConvShape of_one = shape;
          of_one.batch = 1;
          g.add_each([&](std::int64_t b) { return weight_gradient(transposed, of_one, grad[b], other[b]); });
        }
        if (g.wants(2)) {
          g.add(grad.reshape({g.batch(), channels, -1}).sum({2}));
        }
      } else {
        const View given = detail::contiguous(g.output(), format);
        const View grad = relu && !g.is_as_noted() ? without_relu(g, given, y) : given;
        if (g.wants(1)) {
          const View& other = in.get(g);
          launch_weight_grad_to(g.destination(1), shape, transposed ? other : grad, transposed ? grad : other, format);
        }
        if (g.wants(2)) {
          const Destination to = g.destination(2);
          const std::int64_t rest = shape.batch == 0 || channels == 0 ? 0 : grad.numel() / shape.batch / channels;
          detail::sum_to(*detail::try_reshape(to.view, {channels, 1}),
                         *detail::try_reshape(grad, {shape.batch, channels, rest}), to.accumulate);
        }
        if (g.wants(0)) {
          const Destination to = g.destination(0, format);
          (transposed ? launch_conv<> : launch_in_grad)(shape, grad, w.get(g), nullptr, to.view, to.accumulate, format);
        }
      }
    }};
  });
  if (of.relu) {
    let_products_mask(result);
  }
  return result;
}

Arguments along_image(const char* op, Size2d stride, const ConvPadding& padding, Size2d dilation, std::int64_t groups) {
  return {.op = op,
          .dims = 2,
          .transposed = false,
          .stride = {stride.height, stride.width},
          .dilation = {dilation.height, dilation.width},
          .padding = padding,
          .output_padding = {},
          .groups = groups};
}

Arguments along_length(const char* op, std::int64_t stride, const ConvPadding& padding, std::int64_t dilation,
                       std::int64_t groups) {
  return {.op = op,
          .dims = 1,
          .transposed = false,
          .stride = {1, stride},
          .dilation = {1, dilation},
          .padding = padding,
          .output_padding = {},
          .groups = groups};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Size2d stride, ConvPadding padding,
              Size2d dilation, std::int64_t groups) {
  return convolve(along_image("conv2d", stride, padding, dilation, groups), x, weight, bias);
}

Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, Size2d stride, ConvPadding padding,
                   Size2d dilation, std::int64_t groups) {
  Arguments arguments = along_image("conv2d", stride, padding, dilation, groups);
  arguments.relu = true;
  return convolve(arguments, x, weight, bias);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride, ConvPadding padding,
              std::int64_t dilation, std::int64_t groups) {
  return convolve(along_length("conv1d", stride, padding, dilation, groups), x, weight, bias);
}

Tensor conv1d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride, ConvPadding padding,
                   std::int64_t dilation, std::int64_t groups) {
  Arguments arguments = along_length("conv1d", stride, padding, dilation, groups);
  arguments.relu = true;
  return convolve(arguments, x, weight, bias);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Size2d stride, Size2d padding,
                        Size2d output_padding, std::int64_t groups, Size2d dilation) {
  return convolve({.op = "conv_transpose2d",
                   .dims = 2,
                   .transposed = true,
                   .stride = {stride.height, stride.width},
                   .dilation = {dilation.height, dilation.width},
                   .padding = padding,
                   .output_padding = {output_padding.height, output_padding.width},
                   .groups = groups},
                  x, weight, bias);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride,
                        std::int64_t padding, std::int64_t output_padding, std::int64_t groups, std::int64_t dilation) {
  return convolve({.op = "conv_transpose1d",
                   .dims = 1,
                   .transposed = true,
                   .stride = {1, stride},
                   .dilation = {1, dilation},
                   .padding = padding,
                   .output_padding = {0, output_padding},
                   .groups = groups},
                  x, weight, bias);
}

}  // namespace tandem::inline v0
