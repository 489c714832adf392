#include <tandem/kernels/cpu/conv_in_grad.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/simd.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// The products of an image and a channel: a plane for each place in rows [first_row, last_row) of the window, `stride`
// apart.
struct Planes {
  const float* data;
  std::int64_t stride;
  std::int64_t first_row, last_row;
};

// The places in a row of the window that gather() takes at most.
constexpr std::int64_t kGathered = 16;

// Where positions one step apart have their products side by side, each vector of elements is the sum of the vectors
// that reach it: memory that was just written would not be there in time to be read.
void gather(const ConvShape& shape, const Planes& products, float bias, bool add, float* plane) {
  for (std::int64_t x = 0; x < shape.in[1]; x += kLanes) {
    std::int64_t offsets[kGathered];
    Mask inside[kGathered];
    for (std::int64_t tx = 0; tx < shape.window[1]; ++tx) {
      const std::int64_t at = x + shape.padding[1] - tx * shape.dilation[1];
      offsets[tx] = tx * products.stride + at;
      inside[tx] = between(-at, shape.out[1] - at);
    }
    const Mask lanes = first(shape.in[1] - x);
    float* to = plane + x;
    for (std::int64_t y = 0; y < shape.in[0]; ++y, to += shape.in[1]) {
      Vec sum = broadcast(bias);
      for (std::int64_t ty = products.first_row; ty < products.last_row; ++ty) {
        const std::int64_t row = y + shape.padding[0] - ty * shape.dilation[0];
        if (row < 0 || row >= shape.out[0]) {
          continue;
        }
        const float* const line =
            products.data + (ty - products.first_row) * shape.window[1] * products.stride + row * shape.out[1];
        for (std::int64_t tx = 0; tx < shape.window[1]; ++tx) {
          sum += load(line + offsets[tx], inside[tx]);
        }
      }
      store(to, add ? load(to, lanes) + sum : sum, lanes);
    }
  }
}

void scatter(const ConvShape& shape, const Planes& products, float bias, bool add, float* plane) {
  for (std::int64_t i = 0; i < shape.in[0] * shape.in[1]; ++i) {
    plane[i] = add ? plane[i] + bias : bias;
  }
  const std::int64_t first = products.first_row * shape.window[1];
  for (std::int64_t tap = first; tap < products.last_row * shape.window[1]; ++tap) {
    const float* from = products.data + (tap - first) * products.stride;
    const std::int64_t left = tap % shape.window[1] * shape.dilation[1] - shape.padding[1];
    std::int64_t y = tap / shape.window[1] * shape.dilation[0] - shape.padding[0];
    for (std::int64_t row = 0; row < shape.out[0]; ++row, y += shape.stride[0], from += shape.out[1]) {
      if (y < 0 || y >= shape.in[0]) {
        continue;
      }
      float* const line = plane + y * shape.in[1];
      std::int64_t x = left;
      for (std::int64_t column = 0; column < shape.out[1]; ++column, x += shape.stride[1]) {
        if (x >= 0 && x < shape.in[1]) {
          line[x] += from[column];
        }
      }
    }
  }
}

}  // namespace

void add_tap_products_f32(const ConvInGrad& kernel, std::int64_t group, const TapProducts& part,
                          const float* products) {
  const ConvShape& shape = kernel.shape;
  const std::int64_t size = shape.in[0] * shape.in[1];
  const std::int64_t taps = part.rows * shape.window[1];
  const std::int64_t positions = shape.out[0] * shape.out[1];
  const bool gathers = shape.stride[0] == 1 && shape.stride[1] == 1 && shape.window[1] <= kGathered;
  const bool add = kernel.accumulate == Accumulate::yes || part.first_row > 0;
  for (std::int64_t c = 0; c < part.channels; ++c) {
    const std::int64_t channel = group * shape.in_channels + part.first_channel + c;
    const float bias =
        kernel.bias == nullptr || part.first_row > 0 ? 0 : static_cast<const float*>(kernel.bias)[channel];
    for (std::int64_t i = 0; i < part.images; ++i) {
      const Planes planes{products + (c * taps * part.images + i) * positions, part.images * positions, part.first_row,
                          part.first_row + part.rows};
      float* const plane = static_cast<float*>(kernel.in_grad) +
                           ((part.first_image + i) * shape.groups * shape.in_channels + channel) * size;
      (gathers ? gather : scatter)(shape, planes, bias, add, plane);
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
