#include <tandem/kernels/cpu/winograd.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/gemm_block.h>
#include <tandem/kernels/cpu/isa/winograd_tiles.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

constexpr int kTaps = 9;
constexpr std::int64_t kPlaces = kWinogradPlaces;
// Floats of a block's sums, so that they stay in the second-level cache.
constexpr std::int64_t kBlockSums = std::int64_t{1} << 16;

// Floats from one place of so many rows to the next.
std::int64_t place_stride(std::int64_t rows, std::int64_t stride) { return winograd_stride(rows * stride); }

float* numbers_of(std::int64_t tiles, std::int64_t stride, ScratchArena& scratch) {
  return scratch.allocate_array<float>(static_cast<std::size_t>(kPlaces * place_stride(tiles, stride)));
}

// The taps of `count` windows, `stride` floats apart, which become lanes.
TANDEM_SIMD void load_windows(const float* from, std::int64_t stride, std::int64_t count, Vec (&taps)[kTaps]) {
  constexpr int kLoaded = kLanes < kTaps ? kLanes : kTaps;
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) {
    square[lane] = lane < count ? load(from + lane * stride, first(kLoaded)) : broadcast(0);
  }
  transpose(square);
#pragma GCC unroll 9
  for (int tap = 0; tap < kLoaded; ++tap) {
    taps[tap] = square[tap];
  }
  if constexpr (kLoaded < kTaps) {
    Vec last{};
#pragma GCC unroll 8
    for (int lane = 0; lane < kLanes; ++lane) {
      last[lane] = lane < count ? from[lane * stride + kLoaded] : 0;
    }
    taps[kLoaded] = last;
  }
}

}  // namespace

void winograd_windows_f32(const PatchProduct& product, const WindowStrides& strides, std::int64_t begin,
                          std::int64_t end, float* transformed) {
  const bool mirrored = product.patches.x.tap_step < 0;
  const std::int64_t stride = winograd_stride(product.rows);
  const std::int64_t place = product.patches.channels * stride;
  for (std::int64_t output = 0; output < product.rows; output += kLanes) {
    const std::int64_t here = min(kLanes, product.rows - output);
    for (std::int64_t channel = begin; channel < end; ++channel) {
      const float* const from =
          static_cast<const float*>(product.weight) + output * strides.output_stride + channel * strides.channel_stride;
      Vec taps[kTaps];
      load_windows(from, strides.output_stride, here, taps);
      const auto tap = [&](int y, int x) { return taps[mirrored ? 8 - 3 * y - x : 3 * y + x]; };
      Four lines[3];
#pragma GCC unroll 3
      for (int y = 0; y < 3; ++y) {
        lines[y] = of_window(tap(y, 0), tap(y, 1), tap(y, 2));
      }
      float* const to = transformed + channel * stride + output;
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) {
        const Four four = of_window(lines[0].at[x], lines[1].at[x], lines[2].at[x]);
#pragma GCC unroll 4
        for (int y = 0; y < 4; ++y) {
          store(to + (4 * y + x) * place, four.at[y]);
        }
      }
    }
  }
}

namespace {

// Writes or adds `count` pixels of kLanes channels, of which those before `channels` exist, to planes.
TANDEM_SIMD void store_planes(const float* pixels, float* planes, std::int64_t stride, std::int64_t channels,
                              std::int64_t count, bool add, bool relu) {
  Vec square[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    square[i] = load(pixels + i * kLanes);
  }
  transpose(square);
  const auto finished = [=](Vec sum) __attribute__((always_inline)) { return relu ? max(broadcast(0), sum) : sum; };
  if (channels >= kLanes && count >= kLanes && !add) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      store(planes + i * stride, finished(square[i]));
    }
    return;
  }
  const Mask lanes = first(count);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < channels) {
      float* const to = planes + i * stride;
      store(to, finished(add ? square[i] + load(to, lanes) : square[i]), lanes);
    }
  }
}

// The outputs of the tiles of rows [row, row + rows) of one image, for `count` channels from the first one on: from
// their numbers, by way of [y, x, lane].
void write_outputs(const PatchProduct& product, const Places4x4& numbers, std::int64_t row, std::int64_t rows,
                   std::int64_t channel, std::int64_t count, float* pixels, float* image) {
  const std::int64_t wide = product.patches.x.positions;
  const std::int64_t high = min(2 * rows, product.patches.y.positions - 2 * row);
  const std::int64_t tiles = up(wide, 2);
  const std::int64_t place = numbers.place_stride;
  for (std::int64_t lane = 0; lane < count; lane += kLanes) {
    const std::int64_t here = min(kLanes, count - lane);
    const float* const bias = static_cast<const float*>(product.bias);
    const Vec more = bias == nullptr ? broadcast(0) : load(bias + channel + lane, first(here));
    const float* from = numbers.data + lane;
    for (std::int64_t y = 0; y < high; y += 2) {
      for (std::int64_t tile = 0; tile < tiles; ++tile, from += numbers.stride) {
        Two lines[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const float* const of_line = from + 4 * i * place;
          lines[i] =
              outputs_of(load(of_line), load(of_line + place), load(of_line + 2 * place), load(of_line + 3 * place));
        }
        float* const to = pixels + (y * wide + 2 * tile) * kLanes;
        const std::int64_t columns = min(2, wide - 2 * tile);
#pragma GCC unroll 2
        for (int x = 0; x < 2; ++x) {
          const Two two = outputs_of(lines[0].at[x], lines[1].at[x], lines[2].at[x], lines[3].at[x]);
          if (x < columns) {
            store(to + x * kLanes, two.at[0] + more);
            if (y + 1 < high) {
              store(to + (wide + x) * kLanes, two.at[1] + more);
            }
          }
        }
      }
    }
    float* const out = image + lane * product.out.channel_stride + 2 * row * wide;
    for (std::int64_t pixel = 0; pixel < high * wide; pixel += kLanes) {
      store_planes(pixels + pixel * kLanes, out + pixel, product.out.channel_stride, here, high * wide - pixel,
                   product.add, product.relu);
    }
  }
}

}  // namespace

void winograd_product_f32(const PatchProduct& product, const float* windows, const WinogradRange& range,
                          ScratchArena& scratch) {
  const Patches& patches = product.patches;
  const std::int64_t channels = patches.channels;
  const std::int64_t wide = WinogradTiles(patches).wide;
  const std::int64_t tiles = range.rows * wide;
  const std::int64_t count = range.images * tiles;
  const std::int64_t stride = winograd_stride(channels);
  const std::int64_t outputs = range.last - range.first;
  const std::int64_t most_parts = up(outputs, kTileCols);
  const std::int64_t parts = min(most_parts, up(kPlaces * count * outputs, kBlockSums));
  const std::int64_t most = up(up(outputs, parts), kTileCols) * kTileCols;
  const ScratchScope scope(scratch);
  float* const elements = numbers_of(count, stride, scratch);
  const std::int64_t sums_stride = winograd_stride(min(most, outputs));
  float* const sums = numbers_of(count, sums_stride, scratch);
  Pixels pixels(2 * range.rows + 2, 2 * wide + 2, channels, scratch);
  float* const written = scratch.allocate_array<float>(
      static_cast<std::size_t>((up(2 * range.rows * patches.x.positions, kLanes) * kLanes) * kLanes));
  for (std::int64_t image = 0; image < range.images; ++image) {
    pixels.take(static_cast<const float*>(patches.data) + (range.image + image) * patches.image_stride, patches.y.size,
                patches.x.size, patches.y.low() + 2 * range.row, patches.x.low(), 2 * range.rows + 2);
    transform_elements(pixels, range.rows, wide,
                       {elements + image * tiles * stride, place_stride(count, stride), stride});
  }
  const std::int64_t deep = block_depth<FloatUnits>(channels);
  const std::int64_t window_stride = winograd_stride(product.rows);
  for (std::int64_t output = range.first; output < range.last; output += most) {
    const std::int64_t here = min(most, range.last - output);
    for (std::int64_t place = 0; place < kPlaces; ++place) {
      for (std::int64_t k = 0; k < channels; k += deep) {
        multiply_block<FloatUnits>(Left<float>{elements + place * place_stride(count, stride) + k, stride, 1}, count,
                                   min(deep, channels - k), nullptr,
                                   {windows + (place * channels + k) * window_stride + output, window_stride, 0}, here,
                                   {.data = sums + place * place_stride(count, sums_stride),
                                    .stride = sums_stride,
                                    .epilogue = {.add = k > 0}});
      }
    }
    for (std::int64_t image = 0; image < range.images; ++image) {
      write_outputs(product, {sums + image * tiles * sums_stride, place_stride(count, sums_stride), sums_stride},
                    range.row, range.rows, output, here, written,
                    static_cast<float*>(product.out.data) + (range.image + image) * product.out.image_stride +
                        output * product.out.channel_stride);
    }
  }
}

void winograd_gradient_f32(const PatchGradient& gradient, const WinogradRange& range, bool add, float* sums,
                           ScratchArena& scratch) {
  const Patches& patches = gradient.patches;
  const std::int64_t channels = patches.channels;
  const std::int64_t outputs = range.last - range.first;
  const std::int64_t wide = WinogradTiles(patches).wide;
  const std::int64_t tiles = range.rows * wide;
  const std::int64_t count = range.images * tiles;
  const std::int64_t stride = winograd_stride(channels);
  const std::int64_t grad_stride = winograd_stride(outputs);
  const std::int64_t positions = patches.positions();
  const ScratchScope scope(scratch);
  float* const elements = numbers_of(count, stride, scratch);
  float* const grads = numbers_of(count, grad_stride, scratch);
  Pixels pixels(2 * range.rows + 2, 2 * wide + 2, channels, scratch);
  Pixels grad_pixels(2 * range.rows, 2 * wide, outputs, scratch);
  for (std::int64_t image = 0; image < range.images; ++image) {
    pixels.take(static_cast<const float*>(patches.data) + (range.image + image) * patches.image_stride, patches.y.size,
                patches.x.size, patches.y.low() + 2 * range.row, patches.x.low(), 2 * range.rows + 2);
    transform_elements(pixels, range.rows, wide,
                       {elements + image * tiles * stride, place_stride(count, stride), stride});
    grad_pixels.take(static_cast<const float*>(gradient.grad) + (range.image + image) * gradient.grad_image_stride +
                         range.first * positions,
                     patches.y.positions, patches.x.positions, 2 * range.row, 0, 2 * range.rows);
    transform_gradients(grad_pixels, range.rows, wide,
                        {grads + image * tiles * grad_stride, place_stride(count, grad_stride), grad_stride});
  }
  const std::int64_t deep = block_depth<FloatUnits>(count);
  for (std::int64_t place = 0; place < kPlaces; ++place) {
    for (std::int64_t k = 0; k < count; k += deep) {
      multiply_block<FloatUnits>(
          Left<float>{grads + place * place_stride(count, grad_stride) + k * grad_stride, 1, grad_stride}, outputs,
          min(deep, count - k), nullptr, {elements + place * place_stride(count, stride) + k * stride, stride, 0},
          channels,
          {.data = sums + (place * gradient.rows + range.first) * channels,
           .stride = channels,
           .epilogue = {.add = add || k > 0}});
    }
  }
}

void winograd_window_grads_f32(const PatchGradient& gradient, const float* sums, std::int64_t parts, std::int64_t begin,
                               std::int64_t end, bool add, float* out) {
  const std::int64_t channels = gradient.patches.channels;
  const std::int64_t place = gradient.rows * channels;
  for (std::int64_t at = begin * channels; at < end * channels; at += kLanes) {
    const std::int64_t here = min(kLanes, end * channels - at);
    const auto sum = [&](std::int64_t i) {
      Vec total = load(sums + i * place + at, first(here));
      for (std::int64_t part = 1; part < parts; ++part) {
        total += load(sums + (part * kPlaces + i) * place + at, first(here));
      }
      return total;
    };
    Three lines[4];
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
      lines[y] = window_grads_of(sum(4 * y), sum(4 * y + 1), sum(4 * y + 2), sum(4 * y + 3));
    }
    alignas(64) float taps[kTaps * kLanes];
#pragma GCC unroll 3
    for (int x = 0; x < 3; ++x) {
      const Three three = window_grads_of(lines[0].at[x], lines[1].at[x], lines[2].at[x], lines[3].at[x]);
#pragma GCC unroll 3
      for (int y = 0; y < 3; ++y) {
        store(taps + (3 * y + x) * kLanes, three.at[y]);
      }
    }
    float* to = out + at * kTaps;
    for (std::int64_t lane = 0; lane < here; ++lane, to += kTaps) {
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
        to[tap] = add ? to[tap] + taps[tap * kLanes + lane] : taps[tap * kLanes + lane];
      }
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
