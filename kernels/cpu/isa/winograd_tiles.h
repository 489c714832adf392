#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cpu/isa/gemm_pack.h>
#include <tandem/kernels/cpu/winograd.h>
#include <tandem/kernels/scratch.h>

// The transforms of tiles and windows, for the points 0, 1, -1 and infinity. Lanes are channels.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Transformed numbers, in one dimension.
struct Four {
  Vec at[4];
};
struct Three {
  Vec at[3];
};
struct Two {
  Vec at[2];
};

/// The numbers of four elements of an image.
TANDEM_SIMD Four of_elements(Vec a, Vec b, Vec c, Vec d) { return {{a - c, b + c, c - b, b - d}}; }
/// The numbers of a window.
TANDEM_SIMD Four of_window(Vec a, Vec b, Vec c) {
  const Vec outer = broadcast(0.5F) * (a + c);
  const Vec inner = broadcast(0.5F) * b;
  return {{a, outer + inner, outer - inner, c}};
}
/// The numbers of the gradients of two outputs.
TANDEM_SIMD Four of_gradients(Vec a, Vec b) { return {{a, broadcast(0.5F) * (a + b), broadcast(0.5F) * (a - b), b}}; }
/// The outputs, of their four numbers.
TANDEM_SIMD Two outputs_of(Vec a, Vec b, Vec c, Vec d) { return {{a + b + c, b - c - d}}; }
/// The gradient of a window, of its four numbers.
TANDEM_SIMD Three window_grads_of(Vec a, Vec b, Vec c, Vec d) { return {{a + b + c, b - c, b + c - d}}; }

/// A square of numbers with channels as lanes: number (y, x) of tile or row `at` lies at data + (4 * y + x) *
/// place_stride + at * stride.
struct Places4x4 {
  float* data;
  std::int64_t place_stride, stride;
};

/// `count` channels of `planes`, of which each is plane_stride elements behind the one before, become lanes: calls
/// visit(pixel, vector) for the pixels [begin, end).
template <class Visit>
TANDEM_SIMD void for_each_pixel(const float* planes, std::int64_t plane_stride, std::int64_t count, std::int64_t begin,
                                std::int64_t end, Visit&& visit) {
  for (std::int64_t pixel = begin; pixel < end; pixel += kLanes) {
    const std::int64_t here = end - pixel < kLanes ? end - pixel : kLanes;
    Vec square[kLanes];
    if (here == kLanes && count >= kLanes) {
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) {
        square[lane] = load(planes + lane * plane_stride + pixel);
      }
    } else {
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) {
        square[lane] = lane < count ? load(planes + lane * plane_stride + pixel, first(here)) : broadcast(0);
      }
    }
    transpose(square);
    if (here == kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        visit(pixel + i, square[i]);
      }
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < here) {
          visit(pixel + i, square[i]);
        }
      }
    }
  }
}

/// A copy of some lines of an image, with zeros around it and with channels as lanes: [line, column, channel].
class Pixels {
 public:
  /// Line and column 0 are (y, x) of the image, or outside.
  Pixels(std::int64_t lines, std::int64_t columns, std::int64_t channels, ScratchArena& scratch)
      : columns_(columns),
        channels_(channels),
        stride_((channels + kLanes - 1) / kLanes * kLanes),
        data_(scratch.allocate_array<float>(static_cast<std::size_t>(lines * columns * stride_))) {}

  /// Takes lines that begin at (y, x) of an image of high x wide.
  void take(const float* image, std::int64_t high, std::int64_t wide, std::int64_t y, std::int64_t x,
            std::int64_t lines) {
    const std::int64_t top = y < 0 ? -y : 0;
    const std::int64_t bottom = high - y < lines ? high - y : lines;
    const std::int64_t right = wide - x < columns_ ? wide - x : columns_;
    for (std::int64_t line = 0; line < lines; ++line) {
      const bool inside = line >= top && line < bottom;
      clear(line, 0, inside ? -x : columns_);
      clear(line, inside ? right : columns_, columns_);
    }
    for (std::int64_t channel = 0; channel < channels_; channel += kLanes) {
      std::int64_t column = -x;
      float* to = data_ + (top * columns_ - x) * stride_ + channel;
      for_each_pixel(image + channel * high * wide, high * wide, channels_ - channel, (y + top) * wide,
                     (y + bottom) * wide, [&](std::int64_t, Vec pixel) {
                       store(to, pixel);
                       to += stride_;
                       if (++column == right) {
                         column = -x;
                         to += (columns_ - (right + x)) * stride_;
                       }
                     });
    }
  }

  TANDEM_SIMD const float* at(std::int64_t line, std::int64_t column) const {
    return data_ + (line * columns_ + column) * stride_;
  }
  std::int64_t stride() const { return stride_; }
  std::int64_t line_stride() const { return columns_ * stride_; }

 private:
  void clear(std::int64_t line, std::int64_t from, std::int64_t to) {
    for (float* p = data_ + (line * columns_ + from) * stride_; p < data_ + (line * columns_ + to) * stride_;
         p += kLanes) {
      store(p, broadcast(0));
    }
  }

  std::int64_t columns_, channels_;
  std::int64_t stride_;
  float* data_;
};

/// Transforms `rows` x `wide` tiles of 4 x 4 elements.
inline void transform_elements(const Pixels& pixels, std::int64_t rows, std::int64_t wide, Places4x4 to) {
  const std::int64_t line = pixels.line_stride();
  for (std::int64_t row = 0; row < rows; ++row, to.data += wide * to.stride) {
    for (std::int64_t channel = 0; channel < pixels.stride(); channel += kLanes) {
      const float* from = pixels.at(2 * row, 0) + channel;
      const auto next = [&] {
        const Four four = of_elements(load(from), load(from + line), load(from + 2 * line), load(from + 3 * line));
        from += pixels.stride();
        return four;
      };
      Four columns[4];
      columns[0] = next();
      columns[1] = next();
      float* out = to.data + channel;
      for (std::int64_t tile = 0; tile < wide; ++tile, out += to.stride) {
        columns[2] = next();
        columns[3] = next();
        float* place = out;
#pragma GCC unroll 4
        for (int y = 0; y < 4; ++y) {
          const Four four = of_elements(columns[0].at[y], columns[1].at[y], columns[2].at[y], columns[3].at[y]);
#pragma GCC unroll 4
          for (int x = 0; x < 4; ++x, place += to.place_stride) {
            store(place, four.at[x]);
          }
        }
        columns[0] = columns[2];
        columns[1] = columns[3];
      }
    }
  }
}

/// Transforms the gradients of `rows` x `wide` tiles of 2 x 2 outputs.
inline void transform_gradients(const Pixels& pixels, std::int64_t rows, std::int64_t wide, Places4x4 to) {
  const std::int64_t line = pixels.line_stride();
  for (std::int64_t row = 0; row < rows; ++row, to.data += wide * to.stride) {
    for (std::int64_t channel = 0; channel < pixels.stride(); channel += kLanes) {
      const float* from = pixels.at(2 * row, 0) + channel;
      float* out = to.data + channel;
      for (std::int64_t tile = 0; tile < wide; ++tile, out += to.stride, from += 2 * pixels.stride()) {
        const Four left = of_gradients(load(from), load(from + line));
        const Four right = of_gradients(load(from + pixels.stride()), load(from + line + pixels.stride()));
        float* place = out;
#pragma GCC unroll 4
        for (int y = 0; y < 4; ++y) {
          const Four four = of_gradients(left.at[y], right.at[y]);
#pragma GCC unroll 4
          for (int x = 0; x < 4; ++x, place += to.place_stride) {
            store(place, four.at[x]);
          }
        }
      }
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
