#include <tandem/nn/conv.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include <tandem/core/check.h>
#include <tandem/nn/init.h>
#include <tandem/nn/module_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

namespace {

std::string text(const ConvPadding& padding, int dims) {
  return padding.is_same() ? "same" : dims == 2 ? to_string(padding.size()) : fmt::format("{}", padding.size().width);
}

// A weight of these sizes with PyTorch's initial values, for a layer whose arguments make sense.
Tensor make_weight(const char* layer, std::int64_t in_channels, std::int64_t out_channels, Size2d kernel_size,
                   std::int64_t groups, const Shape& sizes, const TensorOptions& made) {
  check<ConfigError>(in_channels >= 0 && out_channels >= 0, "{}: channels must not be negative, got {} and {}", layer,
                     in_channels, out_channels);
  check<ConfigError>(kernel_size.height >= 1 && kernel_size.width >= 1,
                     "{}: the kernel_size must be at least 1, got {}", layer, to_string(kernel_size));
  check<ConfigError>(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0,
                     "{}: {} and {} channels cannot be divided into {} groups", layer, in_channels, out_channels,
                     groups);
  return init::kaiming_uniform_(empty(sizes, made), std::sqrt(5.0));
}

// As in PyTorch, a transposed convolution takes the outputs of an input for the inputs of an output.
Tensor make_bias(std::int64_t out_channels, const Tensor& weight, const TensorOptions& made) {
  const std::int64_t inputs = weight.numel() / std::max<std::int64_t>(weight.size(0), 1);
  const double bound = inputs > 0 ? 1 / std::sqrt(static_cast<double>(inputs)) : 0.0;
  return init::uniform_(empty({out_channels}, made), -bound, bound);
}

std::int64_t part(std::int64_t channels, std::int64_t groups) { return groups >= 1 ? channels / groups : channels; }

}  // namespace

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel_size, const Conv2dOptions& options)
    : stride_(options.stride), padding_(options.padding), dilation_(options.dilation), groups_(options.groups) {
  live_state().product = std::make_unique<detail::ProductState>(detail::ProductState{.dims = 4});
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  weight = parameter(
      "weight", make_weight("Conv2d", in_channels, out_channels, kernel_size, groups_,
                            {out_channels, part(in_channels, groups_), kernel_size.height, kernel_size.width}, made));
  if (options.bias) {
    bias = parameter("bias", make_bias(out_channels, weight, made));
  }
  describe(fmt::format("{}, {}, kernel_size={}, stride={}, padding={}, dilation={}, groups={}, bias={}", in_channels,
                       out_channels, to_string(kernel_size), to_string(stride_), text(padding_, 2),
                       to_string(dilation_), groups_, options.bias));
}

Tensor Conv2d::forward(const Tensor& x) const {
  check_registered();
  return conv2d(x, weight, detail::bias_of(live_state(), bias), stride_, padding_, dilation_, groups_);
}

Tensor Conv2d::forward_relu(const Tensor& x) const {
  check_registered();
  return conv2d_relu(x, weight, detail::bias_of(live_state(), bias), stride_, padding_, dilation_, groups_);
}

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
               const Conv1dOptions& options)
    : stride_(options.stride), padding_(options.padding), dilation_(options.dilation), groups_(options.groups) {
  live_state().product = std::make_unique<detail::ProductState>(detail::ProductState{.dims = 3});
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  weight = parameter("weight", make_weight("Conv1d", in_channels, out_channels, {1, kernel_size}, groups_,
                                           {out_channels, part(in_channels, groups_), kernel_size}, made));
  if (options.bias) {
    bias = parameter("bias", make_bias(out_channels, weight, made));
  }
  describe(fmt::format("{}, {}, kernel_size={}, stride={}, padding={}, dilation={}, groups={}, bias={}", in_channels,
                       out_channels, kernel_size, stride_, text(padding_, 1), dilation_, groups_, options.bias));
}

Tensor Conv1d::forward(const Tensor& x) const {
  check_registered();
  return conv1d(x, weight, detail::bias_of(live_state(), bias), stride_, padding_, dilation_, groups_);
}

Tensor Conv1d::forward_relu(const Tensor& x) const {
  check_registered();
  return conv1d_relu(x, weight, detail::bias_of(live_state(), bias), stride_, padding_, dilation_, groups_);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Size2d kernel_size,
                                 const ConvTranspose2dOptions& options)
    : stride_(options.stride),
      padding_(options.padding),
      output_padding_(options.output_padding),
      dilation_(options.dilation),
      groups_(options.groups) {
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  weight = parameter(
      "weight", make_weight("ConvTranspose2d", in_channels, out_channels, kernel_size, groups_,
                            {in_channels, part(out_channels, groups_), kernel_size.height, kernel_size.width}, made));
  if (options.bias) {
    bias = parameter("bias", make_bias(out_channels, weight, made));
  }
  describe(
      fmt::format("{}, {}, kernel_size={}, stride={}, padding={}, output_padding={}, groups={}, bias={}, "
                  "dilation={}",
                  in_channels, out_channels, to_string(kernel_size), to_string(stride_), to_string(padding_),
                  to_string(output_padding_), groups_, options.bias, to_string(dilation_)));
}

Tensor ConvTranspose2d::forward(const Tensor& x) const {
  check_registered();
  return conv_transpose2d(x, weight, bias, stride_, padding_, output_padding_, groups_, dilation_);
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                                 const ConvTranspose1dOptions& options)
    : stride_(options.stride),
      padding_(options.padding),
      output_padding_(options.output_padding),
      dilation_(options.dilation),
      groups_(options.groups) {
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  weight = parameter("weight", make_weight("ConvTranspose1d", in_channels, out_channels, {1, kernel_size}, groups_,
                                           {in_channels, part(out_channels, groups_), kernel_size}, made));
  if (options.bias) {
    bias = parameter("bias", make_bias(out_channels, weight, made));
  }
  describe(fmt::format(
      "{}, {}, kernel_size={}, stride={}, padding={}, output_padding={}, groups={}, bias={}, "
      "dilation={}",
      in_channels, out_channels, kernel_size, stride_, padding_, output_padding_, groups_, options.bias, dilation_));
}

Tensor ConvTranspose1d::forward(const Tensor& x) const {
  check_registered();
  return conv_transpose1d(x, weight, bias, stride_, padding_, output_padding_, groups_, dilation_);
}

}  // namespace tandem::inline v0::nn
