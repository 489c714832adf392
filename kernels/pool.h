#pragma once

#include <array>
#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>

// Pooling over windows in two dimensions, plane by plane. One dimension is two with a height of 1. Arrays are dense:
// [planes / inner, height, width, inner].

namespace tandem::inline v0::kernels {

/// The sizes of a pooling, by (height, width). `padding` is the one before the plane; what lies outside has no part in
/// a maximum and adds 0 to a sum.
struct PoolShape {
  std::int64_t planes;
  std::array<std::int64_t, 2> in, out;
  /// Adaptive: window i of n is [floor(i in / n), ceil((i + 1) in / n)), and the fields below mean nothing.
  bool adaptive;
  std::array<std::int64_t, 2> window, stride, padding, dilation;
  std::int64_t inner = 1;  // planes whose elements lie side by side: the channels of channels-last images; 1 on CPUs

  /// The elements of the plane along one dimension that a window reads: begin, begin + step, ... below end.
  struct Range {
    std::int64_t begin, end, step;
  };
  TANDEM_HD constexpr Range range(int dim, std::int64_t i) const {
    if (adaptive) {
      return {i * in[dim] / out[dim], ((i + 1) * in[dim] + out[dim] - 1) / out[dim], 1};
    }
    const std::int64_t step = dilation[dim];
    std::int64_t begin = i * stride[dim] - padding[dim];
    const std::int64_t end = begin + (window[dim] - 1) * step + 1;
    begin = begin < 0 ? begin + (-begin + step - 1) / step * step : begin;
    return {begin, end < in[dim] ? end : in[dim], step};
  }
  /// The windows that may read an element: [begin, end), and no other.
  TANDEM_HD constexpr Range windows_of(int dim, std::int64_t at) const {
    if (adaptive) {
      return {at * out[dim] / in[dim], ((at + 1) * out[dim] + in[dim] - 1) / in[dim], 1};
    }
    const std::int64_t before = at + padding[dim] - (window[dim] - 1) * dilation[dim];
    const std::int64_t end = (at + padding[dim]) / stride[dim] + 1;
    return {before <= 0 ? 0 : (before + stride[dim] - 1) / stride[dim], end < out[dim] ? end : out[dim], 1};
  }
  constexpr std::int64_t in_plane() const { return in[0] * in[1]; }
  constexpr std::int64_t out_plane() const { return out[0] * out[1]; }
};

/// out = the largest element of each window, and its place in the plane (the first one of equals; a NaN is larger than
/// all, and the last one counts). Every window has an element inside.
struct MaxPool {
  static constexpr const char* kName = "max_pool";
  DType dtype;
  PoolShape shape;
  const void* in;
  void* out;
  std::int32_t* places;  // laid out like `out`, y * width + x in the plane
};
void run(OnCpu, Context& context, const MaxPool& kernel);
void run(OnCuda, Context& context, const MaxPool& kernel);

/// in_grad (+)= the gradient of MaxPool's `in`.
struct MaxPoolGrad {
  static constexpr const char* kName = "max_pool_grad";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  PoolShape shape;
  const void* grad;
  const std::int32_t* places;
  void* in_grad;
};
void run(OnCpu, Context& context, const MaxPoolGrad& kernel);
void run(OnCuda, Context& context, const MaxPoolGrad& kernel);

/// What the sum over a window is divided by.
struct Divisor {
  bool include_padding;   // its size, with the padding around the plane, or only what is inside
  std::int64_t override;  // this, unless 0

  /// The factor of a window's size along one dimension.
  TANDEM_HD constexpr std::int64_t length(const PoolShape& shape, int dim, std::int64_t i) const {
    if (!include_padding || shape.adaptive) {
      const PoolShape::Range inside = shape.range(dim, i);
      return inside.end - inside.begin;
    }
    const std::int64_t begin = i * shape.stride[dim] - shape.padding[dim];
    const std::int64_t end = begin + shape.window[dim];
    const std::int64_t border = shape.in[dim] + shape.padding[dim];
    return (end < border ? end : border) - begin;
  }
  /// That of a window.
  TANDEM_HD constexpr std::int64_t at(const PoolShape& shape, std::int64_t y, std::int64_t x) const {
    return override != 0 ? override : length(shape, 0, y) * length(shape, 1, x);
  }
};

/// out = the mean of each window. The dilation is 1.
struct AvgPool {
  static constexpr const char* kName = "avg_pool";
  DType dtype;
  PoolShape shape;
  Divisor divisor;
  const void* in;
  void* out;
};
void run(OnCpu, Context& context, const AvgPool& kernel);
void run(OnCuda, Context& context, const AvgPool& kernel);

/// in_grad (+)= the gradient of AvgPool's `in`.
struct AvgPoolGrad {
  static constexpr const char* kName = "avg_pool_grad";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  PoolShape shape;
  Divisor divisor;
  const void* grad;
  void* in_grad;
};
void run(OnCpu, Context& context, const AvgPoolGrad& kernel);
void run(OnCuda, Context& context, const AvgPoolGrad& kernel);

}  // namespace tandem::inline v0::kernels
