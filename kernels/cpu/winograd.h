#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/patches.h>
#include <tandem/kernels/kernel.h>

// Convolutions with windows of 3 x 3, one step apart, by 16 multiplications where 36 are usual: F(2x2, 3x3) of A. Lavin
// and S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, and F(3x3, 2x2) for the gradient of the
// weights. Outputs are computed in tiles of 2 x 2, each from 4 x 4 elements of the images. Tiles and windows are
// transformed to 16 places each; each place of the result is a product of matrices, over all channels or all tiles.

namespace tandem::inline v0::kernels::cpu {

/// The numbers of a transformed tile or window.
inline constexpr std::int64_t kWinogradPlaces = 16;

/// The tiles of an image. Those at the ends may stand over by a row or a column.
struct WinogradTiles {
  std::int64_t high, wide;

  [[gnu::always_inline]] explicit WinogradTiles(const Patches& patches)
      : high((patches.y.positions + 1) / 2), wide((patches.x.positions + 1) / 2) {}
};

/// Floats from one row of so many transformed numbers to the next: not a power of two lines, so that rows do not share
/// cache sets.
[[gnu::always_inline]] constexpr std::int64_t winograd_stride(std::int64_t count) {
  constexpr std::int64_t kLine = 16;
  return ((count + kLine - 1) / kLine | 1) * kLine;
}

/// A part of the work: rows of tiles [row, row + rows) of images [image, image + images), for outputs [first, last).
struct WinogradRange {
  std::int64_t image, images;
  std::int64_t row, rows;
  std::int64_t first, last;
};

/// Where the windows of a product lie: that of an output and a channel at output * output_stride + channel *
/// channel_stride of its weight.
struct WindowStrides {
  std::int64_t output_stride, channel_stride;
};

// For instruction sets with fused multiply-adds.
TANDEM_FOR_EACH_ISA(
    /* Transforms the windows of channels [begin, end) of the product, to [place, channel, output]. */
    void winograd_windows_f32(const PatchProduct& product, const WindowStrides& strides, std::int64_t begin,
                              std::int64_t end, float* transformed);
    void winograd_product_f32(const PatchProduct& product, const float* windows, const WinogradRange& range,
                              ScratchArena& scratch);
    /* sums[place, output, channel] (+)= the transformed gradient of the windows. The channels' rows are dense. */
    void winograd_gradient_f32(const PatchGradient& gradient, const WinogradRange& range, bool add, float* sums,
                               ScratchArena& scratch);
    /* out[output, channel, 3, 3] (+)= the gradient of the windows of outputs [begin, end), from `parts` sums. */
    void winograd_window_grads_f32(const PatchGradient& gradient, const float* sums, std::int64_t parts,
                                   std::int64_t begin, std::int64_t end, bool add, float* out);)

/// Whether the patches can be multiplied in this way, and faster so.
bool takes_winograd(const Patches& patches, std::int64_t outputs);

/// Computes the product of each group. `product` is that of group 0.
void multiply_winograd(Context& context, const PatchProduct& product, const WindowStrides& strides,
                       std::int64_t groups);

/// out[output, channel, 3, 3] (+)= the gradient of the weights of each group. `gradient` is that of group 0.
void winograd_gradient(Context& context, const PatchGradient& gradient, std::int64_t groups, bool add, float* out);

}  // namespace tandem::inline v0::kernels::cpu
