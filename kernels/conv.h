#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/core/shape.h>
#include <tandem/kernels/kernel.h>

// Convolutions in two dimensions, in the sense of cross-correlation. One dimension is two with a height of 1. All
// arrays are dense: images [batch, channels, height, width], weights [outputs, inputs of a group, height, width]. On
// GPUs all of a kernel's arrays may be channels-last instead: their second dimension is then the innermost.

namespace tandem::inline v0::kernels {

/// Sizes along (height, width).
using Sizes2 = std::array<std::int64_t, 2>;

/// The sizes of a convolution. Output o at position y reads input i at y * stride - padding + w * dilation for each
/// place w of the window; what lies outside is 0. `padding` is the one before the image; `out` implies the one behind
/// it.
struct ConvShape {
  std::int64_t batch, groups;
  std::int64_t in_channels, out_channels;  // of one group
  Sizes2 in, out, window, stride, padding, dilation;

  constexpr std::int64_t in_size() const { return groups * in_channels * in[0] * in[1]; }      // elements of an image
  constexpr std::int64_t out_size() const { return groups * out_channels * out[0] * out[1]; }  // of a result
  constexpr std::int64_t depth() const { return in_channels * window[0] * window[1]; }         // products to an output
  constexpr std::int64_t weight_size() const { return groups * out_channels * depth(); }
  /// Orders shapes by their members, for maps.
  auto operator<=>(const ConvShape&) const = default;
};

/// out (+)= the convolution of `in` with `weight`, plus the bias; then max(out, 0) if `relu`.
struct Conv {
  static constexpr const char* kName = "conv";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  ConvShape shape;
  const void* in;
  const void* weight;
  const void* bias;  // [groups * out_channels], or null
  void* out;
  bool relu = false;  // NaN stays; of cuDNN's ReLU in 16 bits and TF32 that is not known
  MemoryFormat format = MemoryFormat::contiguous;
};
void run(OnCpu, Context& context, const Conv& kernel);
void run(OnCuda, Context& context, const Conv& kernel);

/// in_grad (+)= the gradient of Conv's `in`, plus the bias: with a bias, the forward pass of a transposed convolution.
struct ConvInGrad {
  static constexpr const char* kName = "conv_in_grad";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  ConvShape shape;
  const void* grad;  // of the output
  const void* weight;
  const void* bias;  // [groups * in_channels], or null
  void* in_grad;
  MemoryFormat format = MemoryFormat::contiguous;
};
void run(OnCpu, Context& context, const ConvInGrad& kernel);
void run(OnCuda, Context& context, const ConvInGrad& kernel);

/// weight_grad (+)= the gradient of Conv's `weight`.
struct ConvWeightGrad {
  static constexpr const char* kName = "conv_weight_grad";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  ConvShape shape;
  const void* grad;
  const void* in;
  void* weight_grad;
  MemoryFormat format = MemoryFormat::contiguous;
};
void run(OnCpu, Context& context, const ConvWeightGrad& kernel);
void run(OnCuda, Context& context, const ConvWeightGrad& kernel);

}  // namespace tandem::inline v0::kernels
