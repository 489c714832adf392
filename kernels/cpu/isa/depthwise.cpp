#include <tandem/kernels/cpu/patches.h>

#include <array>
#include <utility>

#include <tandem/kernels/cpu/isa/simd.h>

// Convolutions of groups of one channel, whose positions are one step apart, in f32. A group's product would have too
// few rows to fill a tile, so lanes run along the lines of the image instead: each tap of a window is a line that is
// shifted, with zeros where it stands over the border.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

constexpr int kMost = 4;  // vectors of a line side by side: few would leave the multipliers waiting

// The lanes of each vector that lie inside of a line, for each place in a row of the window. The same for all lines.
struct Inside {
  Mask lanes[kDepthwiseTaps][kMost];

  Inside(const PatchAxis& axis, std::int64_t x) {
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
      for (int v = 0; v < kMost; ++v) {
        const std::int64_t at = axis.at(x, tap) + v * kLanes;
        lanes[tap][v] = between(-at, axis.size - at);
      }
    }
  }
};

// kVecs vectors of a line of outputs, from position `x` on.
template <int kVecs>
void convolve_vectors(const Patches& patches, const float* in, const float* weight, float bias, std::int64_t y,
                      std::int64_t x, const Inside& inside, bool add, bool relu, float* out) {
  const PatchAxis& axis_y = patches.y;
  const PatchAxis& axis_x = patches.x;
  Vec sum[kVecs];
#pragma GCC unroll 4
  for (Vec& one : sum) {
    one = broadcast(bias);
  }
  for (std::int64_t ty = 0; ty < axis_y.taps; ++ty) {
    const std::int64_t row = axis_y.at(y, ty);
    if (row < 0 || row >= axis_y.size) {
      continue;
    }
    const float* const line = in + row * axis_x.size;
    for (std::int64_t tx = 0; tx < axis_x.taps; ++tx) {
      const Vec a = broadcast(weight[ty * axis_x.taps + tx]);
      const std::int64_t from = axis_x.at(x, tx);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const std::int64_t at = from + v * kLanes;
        const bool whole = !kMasksAreCheap && at >= 0 && at + kLanes <= axis_x.size;
        sum[v] = fma(a, whole ? load(line + at) : load(line + at, inside.lanes[tx][v]), sum[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    const Mask lanes = first(axis_x.positions - x - v * kLanes);
    float* const to = out + v * kLanes;
    const Vec value = add ? sum[v] + load(to, lanes) : sum[v];
    store(to, relu ? max(broadcast(0), value) : value, lanes);
  }
}

// One output channel of an image.
void convolve_plane(const PatchProduct& product, const float* in, const float* weight, float bias, float* out) {
  const Patches& patches = product.patches;
  constexpr std::array kVectors{&convolve_vectors<1>, &convolve_vectors<2>, &convolve_vectors<3>, &convolve_vectors<4>};
  const std::int64_t wide = patches.x.positions;
  for (std::int64_t x = 0; x < wide; x += kMost * kLanes) {
    const std::int64_t vectors = (wide - x + kLanes - 1) / kLanes;
    const auto convolve = kVectors[static_cast<std::size_t>((vectors < kMost ? vectors : kMost) - 1)];
    const Inside inside(patches.x, x);
    for (std::int64_t y = 0; y < patches.y.positions; ++y) {
      convolve(patches, in, weight, bias, y, x, inside, product.add, product.relu, out + y * wide + x);
    }
  }
}

}  // namespace

void depthwise_f32(const PatchProduct& product, std::int64_t groups, std::int64_t begin, std::int64_t end) {
  const Patches& patches = product.patches;
  for (std::int64_t plane = begin; plane < end; ++plane) {
    const std::int64_t image = plane / groups;
    const PatchProduct one = product.of_group<float>(plane % groups);
    const float* const in = static_cast<const float*>(one.patches.data) + image * patches.image_stride;
    for (std::int64_t row = 0; row < one.rows; ++row) {
      convolve_plane(one, in, static_cast<const float*>(one.weight) + row * patches.taps(),
                     one.bias == nullptr ? 0 : static_cast<const float*>(one.bias)[row],
                     static_cast<float*>(one.out.data) + image * one.out.image_stride + row * one.out.channel_stride);
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
