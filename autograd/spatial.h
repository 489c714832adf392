#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

// Differentiable functions of images [batch, channels, height, width] and of sequences [batch, channels, length]. The
// batch may be left out of a convolution or pooling. Names and the order of arguments are those of torch.nn.functional,
// but for instance_norm(), which has no running statistics, and interpolate(), which has no scale_factor.

namespace tandem::inline v0 {

/// A number for (height, width), or one for both.
struct Size2d {
  std::int64_t height;  // or rows
  std::int64_t width;   // or columns

  constexpr Size2d(std::int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Size2d(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};
/// "(height, width)".
TANDEM_API std::string to_string(Size2d size);

/// What a convolution adds around its input: a number of zeros on each side; "valid", none; or "same", as many as keep
/// the size, for a stride of 1.
class ConvPadding {
 public:
  constexpr ConvPadding(std::int64_t both) : size_(both) {}  // NOLINT(google-explicit-constructor)
  constexpr ConvPadding(std::int64_t h, std::int64_t w) : size_(h, w) {}
  constexpr ConvPadding(Size2d size) : size_(size) {}  // NOLINT(google-explicit-constructor)
  /// Throws ConfigError for another name.
  template <std::size_t N>
  ConvPadding(const char (&name)[N])  // NOLINT(google-explicit-constructor)
      : ConvPadding(std::string_view(name)) {}
  TANDEM_API explicit ConvPadding(std::string_view name);

  /// Whether it is "same".
  constexpr bool is_same() const { return is_same_; }
  /// The numbers; 0 for the names.
  constexpr Size2d size() const { return size_; }

 private:
  Size2d size_;
  bool is_same_ = false;
};

/// The convolution (in the sense of cross-correlation) of x [N, C, H, W] with the windows `weight` [O, C / groups, kh,
/// kw], plus bias [O] if given: [N, O, H', W'] with H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1. Channels
/// are divided into `groups`, which don't see each other. Throws ShapeError if the sizes do not fit, ConfigError for a
/// stride, dilation or group below 1, a negative padding, and "same" with a stride.
TANDEM_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Size2d stride = 1,
                         ConvPadding padding = 0, Size2d dilation = 1, std::int64_t groups = 1);
/// conv2d() along one dimension: x [N, C, L], weight [O, C / groups, k].
TANDEM_API Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, std::int64_t stride = 1,
                         ConvPadding padding = 0, std::int64_t dilation = 1, std::int64_t groups = 1);
/// relu(conv2d(x, weight, bias, ...)) in one pass over the result.
TANDEM_API Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Size2d stride = 1,
                              ConvPadding padding = 0, Size2d dilation = 1, std::int64_t groups = 1);
/// relu(conv1d(x, weight, bias, ...)) in one pass over the result.
TANDEM_API Tensor conv1d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, std::int64_t stride = 1,
                              ConvPadding padding = 0, std::int64_t dilation = 1, std::int64_t groups = 1);

/// The transposed convolution: the gradient of conv2d() by its input, as a function of x [N, C, H, W]. `weight` is [C,
/// O / groups, kh, kw], the result [N, O, H', W'] with H' = (H - 1) stride - 2 padding + dilation (kh - 1) +
/// output_padding
/// + 1. The output_padding, less than stride or dilation, chooses among the sizes that conv2d() maps to H. Errors as
/// those of conv2d().
TANDEM_API Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Size2d stride = 1,
                                   Size2d padding = 0, Size2d output_padding = 0, std::int64_t groups = 1,
                                   Size2d dilation = 1);
/// conv_transpose2d() along one dimension: x [N, C, L], weight [C, O / groups, k].
TANDEM_API Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                   std::int64_t stride = 1, std::int64_t padding = 0, std::int64_t output_padding = 0,
                                   std::int64_t groups = 1, std::int64_t dilation = 1);

/// The largest element of each window: x [N, C, H, W] -> [N, C, H', W'] with H' = (H + 2 padding - dilation (kh - 1) -
/// 1) / stride + 1, rounded up with `ceil_mode`, where the last window begins inside the input or its padding. The
/// stride is the kernel_size unless given; padding, at most half the kernel_size, never is the largest. The gradient
/// goes to the first of equal elements. NaN is larger than all numbers. Throws ShapeError if the sizes do not fit,
/// ConfigError for numbers out of range.
TANDEM_API Tensor max_pool2d(const Tensor& x, Size2d kernel_size, std::optional<Size2d> stride = std::nullopt,
                             Size2d padding = 0, Size2d dilation = 1, bool ceil_mode = false);
/// max_pool2d(), and the i64 places of the elements in their planes, y * W + x.
TANDEM_API std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Size2d kernel_size,
                                                             std::optional<Size2d> stride = std::nullopt,
                                                             Size2d padding = 0, Size2d dilation = 1,
                                                             bool ceil_mode = false);
/// max_pool2d() along one dimension: x [N, C, L].
TANDEM_API Tensor max_pool1d(const Tensor& x, std::int64_t kernel_size,
                             std::optional<std::int64_t> stride = std::nullopt, std::int64_t padding = 0,
                             std::int64_t dilation = 1, bool ceil_mode = false);
/// The mean of each window, sizes as those of max_pool2d(). The sum is divided by the window's size; without
/// `count_include_pad`, by the number of elements inside the input; with a `divisor_override`, by that.
TANDEM_API Tensor avg_pool2d(const Tensor& x, Size2d kernel_size, std::optional<Size2d> stride = std::nullopt,
                             Size2d padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                             std::optional<std::int64_t> divisor_override = std::nullopt);
/// avg_pool2d() along one dimension: x [N, C, L].
TANDEM_API Tensor avg_pool1d(const Tensor& x, std::int64_t kernel_size,
                             std::optional<std::int64_t> stride = std::nullopt, std::int64_t padding = 0,
                             bool ceil_mode = false, bool count_include_pad = true);
/// The mean of each of H' x W' windows that cover x [N, C, H, W]: window i of n is [floor(i H / n), ceil((i + 1) H /
/// n)). Size 1 is the mean of the plane. Throws ConfigError for a size below 1.
TANDEM_API Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output_size);
/// The largest element of each of these windows.
TANDEM_API Tensor adaptive_max_pool2d(const Tensor& x, Size2d output_size);

/// What stands in a padding.
enum class PadMode : std::uint8_t { constant, reflect, replicate, circular };

/// x with so many elements before and behind its last dimension, then those of the one before it, and so on: {left,
/// right, top, bottom}. They are `value`; or the mirror image about the border element, which is not repeated; or the
/// border element; or those of the other end. Negative numbers of a constant padding take elements away. Throws
/// ConfigError for too many or an odd number of sizes, ShapeError where a dimension is too short.
TANDEM_API Tensor pad(const Tensor& x, const std::vector<std::int64_t>& sizes, PadMode mode = PadMode::constant,
                      double value = 0);
/// The windows of x [N, C, H, W] as columns: [N, C kh kw, windows]. Throws ShapeError for a window that is
/// larger than the padded input, ConfigError for numbers out of range.
TANDEM_API Tensor unfold(const Tensor& x, Size2d kernel_size, Size2d dilation = 1, Size2d padding = 0,
                         Size2d stride = 1);

/// How interpolate() computes an element.
enum class InterpolateMode : std::uint8_t {
  nearest,   // element floor(i * old / new)
  bilinear,  // between the four elements around (i + 0.5) * old / new - 0.5
};

/// Images x [N, C, H, W] in another size. With `align_corners` the corner elements of both images have the same places.
/// Throws ConfigError for a size below 1, and ShapeError for an input without elements.
TANDEM_API Tensor interpolate(const Tensor& x, Size2d size, InterpolateMode mode = InterpolateMode::nearest,
                              bool align_corners = false);

/// dropout() of whole channels of x [N, C, ...]: each becomes zero with probability p (Tompson et al., 2015).
TANDEM_API Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true);

/// (x - mean) / sqrt(var + eps) * weight + bias for x [N, C, ...], with mean and (biased) variance of each group of C /
/// num_groups channels of a sample; weight and bias, if given, are [C] (Wu and He, 2018). Throws ConfigError unless the
/// groups divide the channels.
TANDEM_API Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// group_norm() with a group for each channel (Ulyanov et al., 2016).
TANDEM_API Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight, with the mean over the last dimensions, whose sizes are `normalized_shape`
/// (Zhang and Sennrich, 2019). Without an eps, it is the smallest step above 1 of f64, or else of f32.
TANDEM_API Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                           std::optional<double> eps = std::nullopt);

}  // namespace tandem::inline v0
