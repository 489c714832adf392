#pragma once

#include <cstdint>

#include <tandem/kernels/conv.h>
#include <tandem/kernels/cpu/per_isa.h>

namespace tandem::inline v0::kernels::cpu {

/// The products of some images' gradients and some channels' windows: [channel, place in the window, image, position].
struct TapProducts {
  std::int64_t first_image, images;
  std::int64_t first_channel, channels;  // of a group
};

// For instruction sets with fused multiply-adds.
TANDEM_FOR_EACH_ISA(
    /* Writes the bias, or 0, to the channels of the images, or adds it, and adds the products to their places. */
    void add_tap_products_f32(const ConvInGrad& kernel, std::int64_t group, const TapProducts& part,
                              const float* products);)

/// The gradient of a convolution's images, for T = float or double.
template <class T>
void convolve_back(Context& context, const ConvInGrad& kernel);

}  // namespace tandem::inline v0::kernels::cpu
