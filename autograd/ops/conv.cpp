#include <array>
#include <optional>
#include <string>
#include <utility>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/kernels/conv.h>

namespace tandem::inline v0 {

using namespace autograd;
using kernels::ConvShape;

ConvPadding::ConvPadding(std::string_view name) : size_(0), is_same_(name == "same") {
  check<ConfigError>(is_same_ || name == "valid", "padding: expected numbers, \"same\" or \"valid\", got \"{}\"", name);
}

namespace {

// One of the two ways to see a convolution: along (height, width), or along a length as a height of 1.
struct Conv2dArguments {
  const char* op;
  int dims;  // 1 or 2
  std::array<std::int64_t, 2> stride, dilation;
  ConvPadding padding;
  std::int64_t groups;
};

void check_numbers(const Conv2dArguments& of) {
  const core::MessagePrefix prefix{of.op};
  const Size2d padding = of.padding.size();
  for (const std::int64_t value : of.stride) {
    check<ConfigError>(value >= 1, "{}the stride must be at least 1, got {}", prefix, value);
  }
  for (const std::int64_t value : of.dilation) {
    check<ConfigError>(value >= 1, "{}the dilation must be at least 1, got {}", prefix, value);
  }
  check<ConfigError>(padding.height >= 0 && padding.width >= 0, "{}the padding must not be negative, got ({}, {})",
                     prefix, padding.height, padding.width);
  check<ConfigError>(of.groups >= 1, "{}expected at least one group, got {}", prefix, of.groups);
  check<ConfigError>(!of.padding.is_same() || (of.stride[0] == 1 && of.stride[1] == 1),
                     "{}padding \"same\" needs a stride of 1; give the padding as numbers", prefix);
}

void check_tensors(const Conv2dArguments& of, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const core::MessagePrefix prefix{of.op};
  const Shape& in = x.shape();
  const Shape& w = weight.shape();
  const char* const image = of.dims == 2 ? "[batch, channels, height, width]" : "[batch, channels, length]";
  check<ShapeError>(w.ndim() == of.dims + 2, "{}the weight must be [out, in / groups, {}], got {}", prefix,
                    of.dims == 2 ? "height, width" : "length", w);
  check<ShapeError>(in.ndim() == of.dims + 2 || in.ndim() == of.dims + 1,
                    "{}the input must be {}, or without the batch, got {}", prefix, image, in);
  check<DeviceError>(x.device() == weight.device(), "{}input is on {}, weight on {}. Move the input: x.to(\"{}\")",
                     prefix, x.device(), weight.device(), weight.device());
  check<DTypeError>(x.dtype() == weight.dtype(), "{}input is {}, weight {}. Convert the input: x.to(DType::{})", prefix,
                    x.dtype(), weight.dtype(), weight.dtype());
  check_floating(of.op, x);
  check<ShapeError>(w[0] % of.groups == 0, "{}{} outputs cannot be divided into {} groups (weight {})", prefix, w[0],
                    of.groups, w);
  const std::int64_t channels = in[in.ndim() - of.dims - 1];
  if (channels != w[1] * of.groups) [[unlikely]] {
    const bool is_last = in.back() == w[1] * of.groups && in.ndim() == of.dims + 2;
    fail<ShapeError>("{}input {} has {} channels, the weight {} with {} group{} expects {}{}", prefix, in, channels, w,
                     of.groups, of.groups == 1 ? "" : "s", w[1] * of.groups,
                     !is_last       ? ""
                     : of.dims == 2 ? ". Channels seem to be last: x.permute({0, 3, 1, 2})"
                                    : ". Channels seem to be last: x.transpose(1, 2)");
  }
  if (bias.defined()) {
    check_same_kind(of.op, weight, bias);
    check<ShapeError>(bias.shape() == Shape{w[0]}, "{}bias {} does not fit the weight {}: expected [{}]", prefix,
                      bias.shape(), w, w[0]);
  }
}

// Sizes of views [batch, channels, height, width] and [out, in / groups, height, width].
ConvShape shape_of(const Conv2dArguments& of, const Shape& in, const Shape& weight) {
  ConvShape shape{.batch = in[0],
                  .groups = of.groups,
                  .in_channels = weight[1],
                  .out_channels = weight[0] / of.groups,
                  .in = {in[2], in[3]},
                  .out = {},
                  .window = {weight[2], weight[3]},
                  .stride = of.stride,
                  .padding = {of.padding.size().height, of.padding.size().width},
                  .dilation = of.dilation};
  for (std::size_t d = of.dims == 2 ? 0 : 1; d < 2; ++d) {
    const std::int64_t reach = shape.dilation[d] * (shape.window[d] - 1) + 1;
    check<ShapeError>(shape.window[d] >= 1, "{}the window must have at least one element, got the weight {}",
                      core::MessagePrefix{of.op}, weight);
    if (of.padding.is_same()) {
      shape.padding[d] = (reach - 1) / 2;
      shape.out[d] = shape.in[d];
      continue;
    }
    const std::int64_t padded = shape.in[d] + 2 * shape.padding[d];
    check<ShapeError>(reach <= padded, "{}a window of {} is larger than the padded input, {} = {} + 2 * {} (input {})",
                      core::MessagePrefix{of.op}, reach, padded, shape.in[d], shape.padding[d], in);
    shape.out[d] = (padded - reach) / shape.stride[d] + 1;
  }
  if (of.dims == 1) {
    shape.out[0] = 1;
    shape.padding[0] = 0;
  }
  return shape;
}

// With a batch, and with a height.
View as_images(const View& view, int dims, bool batched) {
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

Tensor convolve(const Conv2dArguments& of, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_numbers(of);
  check_tensors(of, x, weight, bias);
  const bool batched = x.dim() == of.dims + 2;
  const View in = as_images(x.raw(), of.dims, batched);
  const View w = as_images(weight.raw(), of.dims, true);
  const View shift = dense(bias);
  const ConvShape shape = shape_of(of, in.sizes, w.sizes);
  Shape sizes;
  if (batched) {
    sizes.push_back(shape.batch);
  }
  sizes.push_back(shape.groups * shape.out_channels);
  if (of.dims == 2) {
    sizes.push_back(shape.out[0]);
  }
  sizes.push_back(shape.out[1]);
  View out = detail::empty_view(sizes, in.dtype, in.device());
  kernels::launch(detail::context_of(in), kernels::Conv{.dtype = in.dtype,
                                                        .shape = shape,
                                                        .in = in.data(),
                                                        .weight = w.data(),
                                                        .bias = data_of(shift),
                                                        .out = out.data()});
  return record(of.op, std::move(out), {&x, &weight, &bias}, [&] {
    return [in = weight.requires_grad() ? Saved(in) : Saved(), w = x.requires_grad() ? Saved(w) : Saved(),
            shape](Gradients& g) {
      const View grad = detail::contiguous(g.output());
      kernels::Context& context = detail::context_of(grad);
      if (g.wants(1)) {
        const Destination to = g.destination(1);
        kernels::launch(context, kernels::ConvWeightGrad{.dtype = grad.dtype,
                                                         .accumulate = to.accumulate,
                                                         .shape = shape,
                                                         .grad = grad.data(),
                                                         .in = in.get(g).data(),
                                                         .weight_grad = to.view.data()});
      }
      if (g.wants(2)) {
        const Destination to = g.destination(2);
        const std::int64_t channels = shape.groups * shape.out_channels;
        detail::sum_to(*detail::try_reshape(to.view, {channels, 1}),
                       *detail::try_reshape(grad, {shape.batch, channels, shape.out[0] * shape.out[1]}), to.accumulate);
      }
      if (g.wants(0)) {
        const Destination to = g.destination(0);
        kernels::launch(context, kernels::ConvInGrad{.dtype = grad.dtype,
                                                     .accumulate = to.accumulate,
                                                     .shape = shape,
                                                     .grad = grad.data(),
                                                     .weight = w.get(g).data(),
                                                     .bias = nullptr,
                                                     .in_grad = to.view.data()});
      }
    };
  });
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Size2d stride, ConvPadding padding,
              Size2d dilation, std::int64_t groups) {
  return convolve({.op = "conv2d",
                   .dims = 2,
                   .stride = {stride.height, stride.width},
                   .dilation = {dilation.height, dilation.width},
                   .padding = padding,
                   .groups = groups},
                  x, weight, bias);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t stride, ConvPadding padding,
              std::int64_t dilation, std::int64_t groups) {
  return convolve({.op = "conv1d",
                   .dims = 1,
                   .stride = {1, stride},
                   .dilation = {1, dilation},
                   .padding = padding,
                   .groups = groups},
                  x, weight, bias);
}

}  // namespace tandem::inline v0
