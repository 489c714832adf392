#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tandem/tensor/tensor.h>

// Differentiable functions of windows that move over images [batch, channels, height, width], or over sequences [batch,
// channels, length]. The batch may be left out. Names, arguments and their order are those of torch.nn.functional.

namespace tandem::inline v0 {

/// A number for (height, width), or one for both.
struct Size2d {
  std::int64_t height, width;

  constexpr Size2d(std::int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  constexpr Size2d(std::int64_t h, std::int64_t w) : height(h), width(w) {}
};

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

  constexpr bool is_same() const { return is_same_; }
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

}  // namespace tandem::inline v0
