#include <tandem/kernels/cpu/conv_in_grad.h>

#include <numeric>

#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/cpu/patch_product.h>
#include <tandem/kernels/cpu/winograd.h>

namespace tandem::inline v0::kernels::cpu {

namespace {

// Floats of all channels of a block that leaves rows out, so that they stay in the second-level cache.
constexpr std::int64_t kSlabOfAll = std::int64_t{1} << 16;

// The taps of a window that reach the elements of an image that are `remainder` from a multiple of the stride.
struct Reaching {
  PatchAxis axis;                // patches of the gradient
  std::int64_t first_tap, step;  // in the window

  Reaching(const ConvShape& shape, std::size_t d, std::int64_t remainder) {
    const std::int64_t stride = shape.stride[d];
    const auto place = [&](std::int64_t tap) { return remainder + shape.padding[d] - tap * shape.dilation[d]; };
    step = stride / std::gcd(stride, shape.dilation[d]);
    first_tap = 0;
    while (first_tap < std::min(step, shape.window[d]) && place(first_tap) % stride != 0) {
      ++first_tap;
    }
    const std::int64_t taps = first_tap < std::min(step, shape.window[d]) ? up(shape.window[d] - first_tap, step) : 0;
    axis = {.size = shape.out[d],
            .positions = shape.in[d] > remainder ? up(shape.in[d] - remainder, stride) : 0,
            .step = 1,
            .first = place(first_tap) / stride,
            .taps = taps,
            .tap_step = -step * shape.dilation[d] / stride};
  }
};

// Whether so many rows of windows lie outside the gradient, as at its borders where the convolution had no padding,
// that it pays to leave them out.
bool leaves_rows_out(const Patches& patches) {
  const PatchAxis& y = patches.y;
  const std::int64_t seen = std::min(y.positions, kPatchColumns);
  std::int64_t inside = 0;
  for (std::int64_t position = 0; position < seen; ++position) {
    for (std::int64_t tap = 0; tap < y.taps; ++tap) {
      inside += y.at(position, tap) >= 0 && y.at(position, tap) < y.size ? 1 : 0;
    }
  }
  const std::int64_t images = kPatchColumns / patches.positions() + 2;
  return patches.x.positions <= kPatchColumns && 5 * inside < 4 * seen * y.taps &&
         images * patches.channels * padded_lines(patches, y.positions) <= kSlabOfAll;
}

// The weights that reach one remainder, turned: [groups, rows (inputs), the depth of `patches`].
template <class T>
void turn(const ConvInGrad& kernel, const Reaching& y, const Reaching& x, bool rows_first, std::int64_t first_group,
          std::int64_t groups, std::int64_t first_row, std::int64_t rows, T* to) {
  const ConvShape& shape = kernel.shape;
  const std::int64_t window = shape.window[0] * shape.window[1];
  const std::int64_t line = x.axis.taps;
  const std::int64_t depth = shape.out_channels * y.axis.taps * line;
  const bool whole = !rows_first && depth == shape.out_channels * window;
  // Neighbouring inputs' windows share cache lines, which would be gone if all outputs of one input came first.
  constexpr std::int64_t kRows = 8;
  const std::int64_t blocks = up(rows, kRows);
  core::parallel_for(
      groups * blocks, 1 + kChunkWork / (16 * kRows * depth + 1), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t task = begin; task < end; ++task) {
          const std::int64_t group = task / blocks;
          const std::int64_t row = task % blocks * kRows;
          const std::int64_t past_row = std::min(row + kRows, rows);
          for (std::int64_t out = 0; out < shape.out_channels; ++out) {
            for (std::int64_t r = row; r < past_row; ++r) {
              const T* const from =
                  static_cast<const T*>(kernel.weight) +
                  (((first_group + group) * shape.out_channels + out) * shape.in_channels + first_row + r) * window +
                  y.first_tap * shape.window[1] + x.first_tap;
              T* const of_row = to + (group * rows + r) * depth;
              if (whole && window == 9) {
                std::copy_n(from, 9, of_row + out * 9);  // a length that the compiler knows is twice as fast
                continue;
              }
              for (std::int64_t ty = 0; ty < y.axis.taps; ++ty) {
                T* const turned = of_row + line * (rows_first ? ty * shape.out_channels + out : out * y.axis.taps + ty);
                for (std::int64_t tx = 0; tx < line; ++tx) {
                  turned[tx] = from[ty * y.step * shape.window[1] + tx * x.step];
                }
              }
            }
          }
        }
      });
}

// Computes the gradient in the way of Winograd where that is faster, and returns whether it did.
bool convolve_back_with_winograd(Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  const Patches patches{.data = kernel.grad,
                        .images = shape.batch,
                        .image_stride = shape.out_size(),
                        .channels = shape.out_channels,
                        .y = Reaching(shape, 0, 0).axis,
                        .x = Reaching(shape, 1, 0).axis};
  if (shape.stride != Sizes2{1, 1} || !takes_winograd(patches, shape.in_channels)) {
    return false;
  }
  multiply_winograd(context,
                    {.patches = patches,
                     .weight = kernel.weight,
                     .rows = shape.in_channels,
                     .bias = kernel.bias,
                     .add = kernel.accumulate == Accumulate::yes,
                     .out = {kernel.in_grad, shape.in_size(), shape.in[0] * shape.in[1], shape.in[1], 1}},
                    {.output_stride = 9, .channel_stride = shape.depth()}, shape.groups);
  return true;
}

// Positions of several images whose products are computed at a time.
constexpr std::int64_t kTapColumns = 512;

// Whether it pays to add the products of all positions with all taps to their places: there is no need to turn the
// weights then, and no work for positions outside of the gradient.
bool adds_tap_products(const ConvShape& shape) {
  constexpr std::int64_t kMost = 4096;
  constexpr std::int64_t kMostProducts = std::int64_t{1}
                                         << 22;  // of a row of the window, and gradients, in scratch memory
  const std::int64_t positions = shape.out[0] * shape.out[1];
  const std::int64_t all = shape.batch * positions;
  const bool turns_much = all <= std::min(kMost, 8 * shape.out_channels);
  const bool has_wide_borders = positions <= kMost && shape.stride == Sizes2{1, 1} && shape.out_channels >= 8 &&
                                shape.in[0] * shape.in[1] * 2 >= positions * 3;
  return core::isa() != core::Isa::baseline && all > 0 && (turns_much || has_wide_borders) &&
         (shape.window[1] + shape.out_channels) * std::max(positions, kTapColumns) <= kMostProducts;
}

void add_tap_products(Context& context, const ConvInGrad& kernel) {
  constexpr std::int64_t kProducts = std::int64_t{1} << 16;  // so that they stay in the second-level cache
  const ConvShape& shape = kernel.shape;
  const std::int64_t positions = shape.out[0] * shape.out[1];
  const std::int64_t window = shape.window[0] * shape.window[1];
  const std::int64_t images = std::clamp<std::int64_t>(kTapColumns / positions, 1, shape.batch);
  const std::int64_t columns = images * positions;
  // Some channels, or some rows of the window of one.
  const std::int64_t channels = std::clamp<std::int64_t>(kProducts / (window * columns), 1, shape.in_channels);
  const std::int64_t rows = channels > 1
                                ? shape.window[0]
                                : std::clamp<std::int64_t>(kProducts / (shape.window[1] * columns), 1, shape.window[0]);
  const std::int64_t of_images = up(shape.in_channels, channels);
  const std::int64_t of_group = up(shape.batch, images) * of_images;
  const Device device = context.device;
  const std::int64_t work = channels * window * columns * shape.out_channels;
  core::parallel_for(shape.groups * of_group, 1 + kChunkWork / work, [&](std::int64_t begin, std::int64_t end) {
    ScratchArena& scratch = context_for(device).scratch;
    const ScratchScope scope(scratch);
    float* const grads = scratch.allocate_array<float>(static_cast<std::size_t>(shape.out_channels * columns));
    float* const products =
        scratch.allocate_array<float>(static_cast<std::size_t>(channels * rows * shape.window[1] * columns));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t group = task / of_group;
      TapProducts part{};
      part.first_image = task % of_group / of_images * images;
      part.images = std::min(images, shape.batch - part.first_image);
      part.first_channel = task % of_images * channels;
      part.channels = std::min(channels, shape.in_channels - part.first_channel);
      for (std::int64_t i = 0; i < shape.out_channels * part.images; ++i) {
        const std::int64_t image = part.first_image + i % part.images;
        const std::int64_t channel = group * shape.out_channels + i / part.images;
        std::copy_n(offset<float>(kernel.grad, image * shape.out_size() + channel * positions), positions,
                    grads + i * positions);
      }
      const float* const weight =
          offset<float>(kernel.weight, group * shape.out_channels * shape.depth() + part.first_channel * window);
      const std::int64_t here = part.images * positions;
      for (part.first_row = 0; part.first_row < shape.window[0]; part.first_row += rows) {
        part.rows = std::min(rows, shape.window[0] - part.first_row);
        const std::int64_t taps = part.channels * part.rows * shape.window[1];
        TANDEM_BY_ISA(gemm_f32)
        ({.dtype = DType::f32,
          .m = taps,
          .n = here,
          .k = shape.out_channels,
          .a = {weight + part.first_row * shape.window[1], 1, shape.depth()},
          .b = {grads, here, 1},
          .out = products,
          .out_stride = here},
         {0, taps, 0, here}, scratch, nullptr);
        TANDEM_BY_FMA_ISA(add_tap_products_f32)(kernel, group, part, products);
      }
    }
  });
}

}  // namespace

// Each remainder of the stride has a product of its own: of the gradient's patches and those weights that reach it.
template <class T>
void convolve_back(Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  const std::int64_t plane = shape.in[0] * shape.in[1];
  const std::int64_t depth = shape.out_channels * shape.window[0] * shape.window[1];
  if (shape.groups * shape.in_channels == 0) {
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (convolve_back_with_winograd(context, kernel)) {
      return;
    }
    if (adds_tap_products(shape)) {
      return add_tap_products(context, kernel);
    }
  }
  for_some_weights(
      shape.groups, shape.in_channels, std::max<std::int64_t>(depth, 1),
      [&](std::int64_t group, std::int64_t groups, std::int64_t row, std::int64_t rows) {
        const ScratchScope scope(context.scratch);
        T* const turned = context.scratch.allocate_array<T>(static_cast<std::size_t>(groups * rows * depth));
        const std::int64_t channel = group * shape.in_channels + row;
        for (std::int64_t ry = 0; ry < std::min(shape.stride[0], shape.in[0]); ++ry) {
          for (std::int64_t rx = 0; rx < std::min(shape.stride[1], shape.in[1]); ++rx) {
            const Reaching y(shape, 0, ry);
            const Reaching x(shape, 1, rx);
            Patches patches{.data = offset<T>(kernel.grad, group * shape.out_channels * shape.out[0] * shape.out[1]),
                            .images = shape.batch,
                            .image_stride = shape.out_size(),
                            .channels = shape.out_channels,
                            .y = y.axis,
                            .x = x.axis};
            patches.rows_first = has_own_product<T>() && leaves_rows_out(patches);
            turn(kernel, y, x, patches.rows_first, group, groups, row, rows, turned);
            multiply_groups<T>(context,
                               {.patches = patches,
                                .weight = turned,
                                .rows = rows,
                                .bias = kernel.bias == nullptr ? nullptr : offset<T>(kernel.bias, channel),
                                .add = kernel.accumulate == Accumulate::yes,
                                .out = {offset<T>(kernel.in_grad, channel * plane + ry * shape.in[1] + rx),
                                        shape.in_size(), plane, shape.stride[0] * shape.in[1], shape.stride[1]}},
                               groups);
          }
        }
      });
}

template void convolve_back<float>(Context&, const ConvInGrad&);
template void convolve_back<double>(Context&, const ConvInGrad&);

}  // namespace tandem::inline v0::kernels::cpu
