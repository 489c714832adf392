#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/kernels/conv.h>

// Convolutions as plain loops in double, for the tests of both devices.

namespace tandem::test {

using kernels::ConvShape;

/// A shape whose result has the size that `padding` on both sides gives.
inline ConvShape conv_shape(ConvShape shape) {
  for (std::size_t d = 0; d < 2; ++d) {
    shape.out[d] =
        (shape.in[d] + 2 * shape.padding[d] - shape.dilation[d] * (shape.window[d] - 1) - 1) / shape.stride[d] + 1;
  }
  return shape;
}

inline std::string describe(const ConvShape& s) {
  return fmt::format(
      "batch {}, {} groups, {} -> {} channels, {}x{}, window {}x{}, stride {} {}, padding {} {}, dilation {} {}",
      s.batch, s.groups, s.in_channels, s.out_channels, s.in[0], s.in[1], s.window[0], s.window[1], s.stride[0],
      s.stride[1], s.padding[0], s.padding[1], s.dilation[0], s.dilation[1]);
}

/// Shapes with everything that makes a convolution awkward.
inline std::vector<ConvShape> awkward_convs() {
  std::vector<ConvShape> shapes{
      // batch, groups, in, out channels, in, out, window, stride, padding, dilation
      {1, 1, 1, 1, {1, 1}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 1, 6, {28, 28}, {}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},  // LeNet
      {3, 1, 6, 16, {14, 14}, {}, {5, 5}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 20, 7, {17, 23}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {2, 1, 3, 9, {30, 31}, {}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},  // ResNet's first
      {5, 1, 30, 13, {4, 4}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // images smaller than a block
      {9, 1, 40, 33, {2, 2}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {3, 1, 70, 20, {7, 7}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 5, 8, {15, 14}, {}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},  // elements that no window reads
      {2, 3, 4, 5, {9, 11}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 1}},
      {2, 6, 1, 1, {12, 12}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // depthwise
      {2, 4, 1, 3, {12, 9}, {}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {2, 5, 1, 2, {11, 39}, {}, {3, 5}, {1, 1}, {2, 1}, {1, 3}},  // two outputs of a channel
      {3, 3, 1, 1, {9, 70}, {}, {1, 9}, {1, 1}, {0, 5}, {1, 1}},   // windows wider than its gradient's vectors
      {2, 1, 3, 4, {19, 21}, {}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},
      {1, 1, 2, 3, {23, 20}, {}, {3, 4}, {3, 2}, {2, 5}, {2, 3}},
      {1, 1, 2, 3, {20, 20}, {}, {2, 2}, {4, 3}, {0, 0}, {1, 1}},   // strides beyond the window
      {1, 1, 2, 3, {20, 20}, {}, {3, 3}, {4, 4}, {1, 1}, {6, 2}},   // a dilation that shares factors with the stride
      {1, 1, 3, 2, {5, 5}, {}, {3, 3}, {1, 1}, {4, 4}, {1, 1}},     // windows of nothing but padding
      {2, 1, 4, 6, {1, 300}, {}, {1, 9}, {1, 1}, {0, 4}, {1, 1}},   // one dimension
      {1, 1, 3, 5, {40, 700}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // rows longer than a block
      {1, 1, 3, 5, {9, 700}, {}, {3, 3}, {1, 3}, {1, 1}, {1, 1}},
      {2, 1, 130, 90, {6, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // several blocks of depth and rows
      {4, 2, 5, 30, {8, 9}, {}, {5, 4}, {1, 1}, {0, 0}, {1, 1}},    // borders that many windows stand over, backward
      {5, 1, 7, 40, {9, 9}, {}, {5, 5}, {2, 2}, {0, 0}, {1, 1}},
      {0, 1, 3, 4, {5, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {2, 1, 0, 4, {5, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {2, 1, 3, 0, {5, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
  };
  for (ConvShape& shape : shapes) {
    shape = conv_shape(shape);
  }
  // More padding before than behind, which "same" has for even windows.
  ConvShape uneven{2, 1, 3, 4, {10, 11}, {10, 11}, {4, 2}, {1, 1}, {1, 0}, {1, 1}};
  shapes.push_back(uneven);
  return shapes;
}

/// Calls body(output, input, weight) for each product, by positions in the dense arrays.
template <class Body>
void for_each_product(const ConvShape& s, Body&& body) {
  for (std::int64_t n = 0; n < s.batch; ++n) {
    for (std::int64_t o = 0; o < s.groups * s.out_channels; ++o) {
      for (std::int64_t y = 0; y < s.out[0]; ++y) {
        for (std::int64_t x = 0; x < s.out[1]; ++x) {
          const std::int64_t output = ((n * s.groups * s.out_channels + o) * s.out[0] + y) * s.out[1] + x;
          for (std::int64_t c = 0; c < s.in_channels; ++c) {
            const std::int64_t channel = n * s.groups * s.in_channels + o / s.out_channels * s.in_channels + c;
            for (std::int64_t ky = 0; ky < s.window[0]; ++ky) {
              for (std::int64_t kx = 0; kx < s.window[1]; ++kx) {
                const std::int64_t iy = y * s.stride[0] - s.padding[0] + ky * s.dilation[0];
                const std::int64_t ix = x * s.stride[1] - s.padding[1] + kx * s.dilation[1];
                if (iy >= 0 && iy < s.in[0] && ix >= 0 && ix < s.in[1]) {
                  body(static_cast<std::size_t>(output),
                       static_cast<std::size_t>((channel * s.in[0] + iy) * s.in[1] + ix),
                       static_cast<std::size_t>(((o * s.in_channels + c) * s.window[0] + ky) * s.window[1] + kx));
                }
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace tandem::test
