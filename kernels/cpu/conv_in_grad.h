#pragma once

#include <cstdint>

#include <tandem/kernels/conv.h>
#include <tandem/kernels/cpu/per_isa.h>

namespace tandem::inline v0::kernels::cpu {

/// The products of some images' gradients and some rows of some channels' windows: [channel, row, place in the row,
/// image, position].
struct TapProducts {
  std::int64_t first_image, images;
  std::int64_t first_channel, channels;  // of a group
  std::int64_t first_row, rows;          // of the window
};

// For instruction sets with fused multiply-adds.
TANDEM_FOR_EACH_ISA(
    /* Adds the products to their places in the channels of the images; the first row of the window first writes the
       bias there, or 0, or adds it. */
    void add_tap_products_f32(const ConvInGrad& kernel, std::int64_t group, const TapProducts& part,
                              const float* products);)

/// The gradient of a convolution's images, for T = float or double.
template <class T>
void convolve_back(Context& context, const ConvInGrad& kernel);

}  // namespace tandem::inline v0::kernels::cpu
