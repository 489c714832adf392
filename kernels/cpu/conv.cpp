#include <tandem/kernels/conv.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/patches.h>

// Convolutions as products with patches. All cuts follow from sizes.

namespace tandem::inline v0::kernels {

namespace {

using cpu::kOwnBlocks;
using cpu::kPatchColumns;
using cpu::PatchAxis;
using cpu::Patches;
using cpu::PatchGradient;
using cpu::PatchProduct;

// Cycles that it takes to pack a vector, twice: the tile takes half a cycle for each of its rows.
constexpr std::int64_t kWide = 8;
// Floats of all channels of a block that leaves rows out, so that they stay in the second-level cache.
constexpr std::int64_t kSlabOfAll = std::int64_t{1} << 16;
// Multiply-adds of a chunk, at the least.
constexpr std::int64_t kChunkWork = 500'000;

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class T>
const T* offset(const void* data, std::int64_t elements) {
  return static_cast<const T*>(data) + elements;
}
template <class T>
T* offset(void* data, std::int64_t elements) {
  return static_cast<T*>(data) + elements;
}

// The blocks that the columns of patches are cut into.
class Blocks {
 public:
  explicit Blocks(const Patches& patches)
      : columns_(patches.positions() >= kOwnBlocks ? patches.positions() : patches.columns()),
        ranges_(patches.positions() >= kOwnBlocks ? patches.images : 1) {
    const std::int64_t most = cpu::columns_of_block(patches, kPatchColumns);
    in_range_ = up(columns_, most);
    size_ = std::min(up(up(columns_, in_range_), kStep) * kStep, most);
    in_range_ = up(columns_, size_);
  }

  std::int64_t count() const { return ranges_ * in_range_; }
  std::int64_t begin(std::int64_t block) const {
    return block / in_range_ * columns_ + std::min(block % in_range_ * size_, columns_);
  }
  std::int64_t end(std::int64_t block) const {
    return std::min(begin(block) + size_, (block / in_range_ + 1) * columns_);
  }

 private:
  static constexpr std::int64_t kStep = 32;
  std::int64_t columns_, ranges_;  // a range is an image, or all
  std::int64_t in_range_, size_;
};

// Writes the bias, or 0, to every place of a product without depth.
template <class T>
void write_bias(const PatchProduct& product, std::int64_t groups) {
  const Patches& patches = product.patches;
  for (std::int64_t i = 0; i < patches.images * groups * product.rows; ++i) {
    const std::int64_t channel = i % (groups * product.rows);
    const T value = product.bias != nullptr ? static_cast<const T*>(product.bias)[channel] : T(0);
    T* const out = offset<T>(product.out.data, i / (groups * product.rows) * product.out.image_stride +
                                                   channel * product.out.channel_stride);
    for (std::int64_t y = 0; y < patches.y.positions; ++y) {
      for (std::int64_t x = 0; x < patches.x.positions; ++x) {
        T& to = out[y * product.out.y_stride + x * product.out.x_stride];
        to = product.add ? to + value : value;
      }
    }
  }
}

// Positions along x to compute. Some behind the width cost less than to pack the vectors that hold the end of one line
// and the beginning of the next.
std::int64_t wide_positions(const PatchProduct& product) {
  constexpr std::int64_t kVector = 8;
  const PatchAxis& x = product.patches.x;
  if (product.patches.rows_first) {
    return up(x.positions, 2 * kVector) * 2 * kVector;  // a panel has one row
  }
  const std::int64_t more = std::min(x.high() - x.low(), up(x.positions, kVector) * kVector - x.positions);
  const bool pays = x.step == 1 && product.patches.y.step == 1 && product.rows * more < kWide * kVector &&
                    x.positions + more <= kPatchColumns;  // a longer line has blocks of its own
  return x.positions + (pays ? more : 0);
}

// Whether products are tandem's own, see patches.h.
template <class T>
bool has_own_product() {
  return std::is_same_v<T, float> && core::isa() != core::Isa::baseline;
}

// Whether groups have one channel whose patches are lines of the image, and too few outputs to fill a tile.
bool is_depthwise(const Patches& patches, std::int64_t groups, std::int64_t outputs) {
  return groups > 1 && patches.channels == 1 && outputs <= 2 && patches.y.step == 1 && patches.x.step == 1;
}

// `product` is that of group 0.
template <class T>
void multiply_groups(Context& context, PatchProduct product, std::int64_t groups) {
  Patches& patches = product.patches;
  if (patches.columns() == 0 || product.rows == 0) {
    return;
  }
  if (patches.depth() == 0) {
    return write_bias<T>(product, groups);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (is_depthwise(patches, groups, product.rows) && product.out.is_dense(patches)) {
      const std::int64_t work = product.rows * patches.positions() * patches.depth();
      return core::parallel_for(
          patches.images * groups, 1 + kChunkWork / (work + 1),
          [&](std::int64_t begin, std::int64_t end) { TANDEM_BY_ISA(depthwise_f32)(product, groups, begin, end); });
    }
  }
  if (has_own_product<T>()) {
    patches.x.positions = wide_positions(product);
  }
  const Blocks blocks(patches);
  const Device device = context.device;
  const auto multiply = [&](const cpu::PatchRange& range) {
    ScratchArena& scratch = context_for(device).scratch;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(patch_product_f32)(product, range, scratch);
    } else {
      TANDEM_BY_ISA(patch_product_f64)(product, range, scratch);
    }
  };
  // Groups of little work share what a block costs.
  const std::int64_t work = product.rows * patches.depth() * std::min(patches.columns(), kPatchColumns);
  const std::int64_t some = std::min(groups, 1 + kChunkWork / (work + 1));
  const std::int64_t of_groups = up(groups, some);
  const std::int64_t tasks = of_groups * blocks.count();
  core::parallel_for(tasks, 1 + kChunkWork / (work * some + 1), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t block = task / of_groups;
      const std::int64_t group = task % of_groups * some;
      const cpu::PatchRange range{group, std::min(group + some, groups), blocks.begin(block), blocks.end(block)};
      if (range.begin < range.end) {
        multiply(range);
      }
    }
  });
}

Patches patches_of(const ConvShape& shape, const void* in) {
  const auto axis = [&](std::size_t d) {
    return PatchAxis{.size = shape.in[d],
                     .positions = shape.out[d],
                     .step = shape.out[d] > 1 ? shape.stride[d] : 1,
                     .first = -shape.padding[d],
                     .taps = shape.window[d],
                     .tap_step = shape.dilation[d]};
  };
  return {.data = in,
          .images = shape.batch,
          .image_stride = shape.in_size(),
          .channels = shape.in_channels,
          .y = axis(0),
          .x = axis(1)};
}

template <class T>
void convolve(Context& context, const Conv& kernel) {
  const ConvShape& shape = kernel.shape;
  const std::int64_t plane = shape.out[0] * shape.out[1];
  multiply_groups<T>(context,
                     {.patches = patches_of(shape, kernel.in),
                      .weight = kernel.weight,
                      .rows = shape.out_channels,
                      .bias = kernel.bias,
                      .add = kernel.accumulate == Accumulate::yes,
                      .out = {kernel.out, shape.out_size(), plane, shape.out[1], 1}},
                     shape.groups);
}

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

// Some groups, or some rows of one, so that an array of their weights has at most kMostWeights elements.
constexpr std::int64_t kMostWeights = std::int64_t{1} << 24;

template <class Body>
void for_some_weights(std::int64_t groups, std::int64_t rows, std::int64_t depth, Body&& body) {
  const bool all = groups * rows * depth <= kMostWeights;
  const std::int64_t some_groups = all ? groups : 1;
  const std::int64_t some_rows = all ? rows : std::clamp<std::int64_t>(kMostWeights / depth, 1, rows);
  for (std::int64_t group = 0; group < groups; group += some_groups) {
    for (std::int64_t row = 0; row < rows; row += some_rows) {
      body(group, some_groups, row, std::min(some_rows, rows - row));
    }
  }
}

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
         images * patches.channels * cpu::padded_lines(patches, y.positions) <= kSlabOfAll;
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

// Each remainder of the stride has a product of its own: of the gradient's patches and those weights that reach it.
template <class T>
void convolve_back(Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  const std::int64_t plane = shape.in[0] * shape.in[1];
  const std::int64_t depth = shape.out_channels * shape.window[0] * shape.window[1];
  if (shape.groups * shape.in_channels == 0) {
    return;
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

// Parts of the columns whose sums are added in the end: by sizes, so that threads change no bit.
struct Parts {
  static constexpr std::int64_t kColumns = 8192;
  static constexpr std::int64_t kStep = 512;
  static constexpr std::int64_t kMost = 16;
  static constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  static constexpr std::int64_t kRows = 64;

  std::int64_t count;    // of columns
  std::int64_t columns;  // of each
  std::int64_t rows;     // of each, where columns are few
  std::int64_t row_parts;

  Parts(std::int64_t all_columns, std::int64_t depth, std::int64_t bytes) {
    count =
        std::clamp<std::int64_t>(all_columns / kColumns, 1, std::clamp<std::int64_t>(kBytes / (bytes + 1), 1, kMost));
    columns = up(up(all_columns, count), kStep) * kStep;
    count = up(all_columns, columns);
    row_parts = std::clamp<std::int64_t>(4 / count, 1, up(depth, kRows));
    rows = up(up(depth, row_parts), kRows) * kRows;
    row_parts = up(depth, rows);
  }
};

// The gradient of the weights of some groups: `gradient` has those of the first one.
template <class T>
void gradient_of_groups(Context& context, const PatchGradient& gradient, std::int64_t groups, bool add, T* out) {
  const std::int64_t depth = gradient.patches.depth();
  const std::int64_t columns = gradient.patches.columns();
  if constexpr (std::is_same_v<T, float>) {
    if (is_depthwise(gradient.patches, groups, gradient.rows) && gradient.patches.x.taps <= cpu::kDepthwiseTaps) {
      const std::int64_t of_group = gradient.rows * depth;
      return core::parallel_for(groups, 1 + kChunkWork / (of_group * columns + 1),
                                [&](std::int64_t begin, std::int64_t end) {
                                  for (std::int64_t group = begin; group < end; ++group) {
                                    TANDEM_BY_ISA(depthwise_gradient_f32)(gradient, group, add, out + group * of_group);
                                  }
                                });
    }
  }
  const std::int64_t size = groups * gradient.rows * depth;
  const Parts parts(columns, depth, size * std::int64_t{sizeof(T)});
  // Turning the patches takes less than turning the sums, if there are fewer of them.
  const bool like_weights = parts.count == 1 && columns <= gradient.rows;
  const std::int64_t work = std::min(columns, parts.columns) * std::min(depth, parts.rows) * gradient.rows;
  const std::int64_t some = std::min(groups, 1 + kChunkWork / (work + 1));  // groups of a task
  const std::int64_t of_groups = up(groups, some);
  const Device device = context.device;
  const ScratchScope scope(context.scratch);
  T* const sums = like_weights ? out : context.scratch.allocate_array<T>(static_cast<std::size_t>(parts.count * size));
  const auto compute = [&](std::int64_t task) {
    const std::int64_t group = task % of_groups * some;
    const std::int64_t row = task / of_groups % parts.row_parts * parts.rows;
    const std::int64_t part = task / of_groups / parts.row_parts;
    const cpu::GradientRange range{.group = group,
                                   .last_group = std::min(group + some, groups),
                                   .begin = part * parts.columns,
                                   .end = std::min((part + 1) * parts.columns, columns),
                                   .first = row,
                                   .last = std::min(row + parts.rows, depth),
                                   .like_weights = like_weights,
                                   .add = like_weights && add};
    ScratchArena& scratch = context_for(device).scratch;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(patch_gradient_f32)(gradient, range, sums + part * size, scratch);
    } else {
      TANDEM_BY_ISA(patch_gradient_f64)(gradient, range, sums + part * size, scratch);
    }
  };
  core::parallel_for(parts.count * parts.row_parts * of_groups, 1 + kChunkWork / (work * some + 1),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t task = begin; task < end; ++task) {
                         compute(task);
                       }
                     });
  for (std::int64_t group = 0; group < groups && !like_weights; ++group) {
    const std::int64_t at = group * gradient.rows * depth;
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(add_transposed_f32)(sums + at, parts.count, size, depth, gradient.rows, add, out + at);
    } else {
      TANDEM_BY_ISA(add_transposed_f64)(sums + at, parts.count, size, depth, gradient.rows, add, out + at);
    }
  }
}

template <class T>
void weight_gradient(Context& context, const ConvWeightGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  const bool add = kernel.accumulate == Accumulate::yes;
  T* const out = static_cast<T*>(kernel.weight_grad);
  const Patches patches = patches_of(shape, kernel.in);
  if (patches.columns() == 0 || shape.weight_size() == 0) {
    std::fill_n(out, add ? 0 : shape.weight_size(), T(0));
    return;
  }
  for_some_weights(shape.groups, shape.out_channels, shape.depth(),
                   [&](std::int64_t group, std::int64_t groups, std::int64_t row, std::int64_t rows) {
                     const std::int64_t channel = group * shape.out_channels + row;
                     PatchGradient gradient{.patches = patches,
                                            .grad = offset<T>(kernel.grad, channel * shape.out[0] * shape.out[1]),
                                            .grad_image_stride = shape.out_size(),
                                            .rows = rows};
                     gradient.patches.data =
                         offset<T>(kernel.in, group * shape.in_channels * shape.in[0] * shape.in[1]);
                     gradient_of_groups(context, gradient, groups, add, out + channel * shape.depth());
                   });
}

// 16-bit arrays are widened some images at a time. Sums stay in f32 until the end, where they are rounded once.
constexpr std::int64_t kWidened = std::int64_t{1} << 20;  // elements

template <class T>
const float* widen(ScratchArena& scratch, const void* from, std::int64_t count) {
  float* const to = scratch.allocate_array<float>(static_cast<std::size_t>(count));
  std::copy_n(static_cast<const T*>(from), count, to);
  return to;
}

template <class T>
void round_to(void* to, const float* sums, std::int64_t count, Accumulate accumulate) {
  T* const out = static_cast<T*>(to);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = T(accumulate == Accumulate::yes ? static_cast<float>(out[i]) + sums[i] : sums[i]);
  }
}

// Calls body(first image, the shape of some images).
template <class Body>
void for_some_images(const ConvShape& shape, Body&& body) {
  const std::int64_t some = 1 + kWidened / (shape.in_size() + shape.out_size() + 1);
  for (std::int64_t image = 0; image < shape.batch; image += some) {
    ConvShape part = shape;
    part.batch = std::min(some, shape.batch - image);
    body(image, part);
  }
}

template <class T>
void convolve_16_bit(Context& context, const Conv& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  const float* const weight = widen<T>(scratch, kernel.weight, shape.weight_size());
  const float* const bias =
      kernel.bias == nullptr ? nullptr : widen<T>(scratch, kernel.bias, shape.groups * shape.out_channels);
  for_some_images(shape, [&](std::int64_t image, const ConvShape& part) {
    const ScratchScope inner(scratch);
    const std::int64_t count = part.batch * shape.out_size();
    float* const out = scratch.allocate_array<float>(static_cast<std::size_t>(count));
    convolve<float>(
        context, {.dtype = DType::f32,
                  .shape = part,
                  .in = widen<T>(scratch, offset<T>(kernel.in, image * shape.in_size()), part.batch * shape.in_size()),
                  .weight = weight,
                  .bias = bias,
                  .out = out});
    round_to<T>(offset<T>(kernel.out, image * shape.out_size()), out, count, kernel.accumulate);
  });
}

template <class T>
void convolve_back_16_bit(Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  const float* const weight = widen<T>(scratch, kernel.weight, shape.weight_size());
  const float* const bias =
      kernel.bias == nullptr ? nullptr : widen<T>(scratch, kernel.bias, shape.groups * shape.in_channels);
  for_some_images(shape, [&](std::int64_t image, const ConvShape& part) {
    const ScratchScope inner(scratch);
    const std::int64_t count = part.batch * shape.in_size();
    float* const in_grad = scratch.allocate_array<float>(static_cast<std::size_t>(count));
    convolve_back<float>(context, {.dtype = DType::f32,
                                   .shape = part,
                                   .grad = widen<T>(scratch, offset<T>(kernel.grad, image * shape.out_size()),
                                                    part.batch * shape.out_size()),
                                   .weight = weight,
                                   .bias = bias,
                                   .in_grad = in_grad});
    round_to<T>(offset<T>(kernel.in_grad, image * shape.in_size()), in_grad, count, kernel.accumulate);
  });
}

template <class T>
void weight_gradient_16_bit(Context& context, const ConvWeightGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  float* const sums = scratch.allocate_array<float>(static_cast<std::size_t>(shape.weight_size()));
  std::fill_n(sums, shape.weight_size(), 0.0F);
  for_some_images(shape, [&](std::int64_t image, const ConvShape& part) {
    const ScratchScope inner(scratch);
    weight_gradient<float>(
        context,
        {.dtype = DType::f32,
         .accumulate = Accumulate::yes,
         .shape = part,
         .grad = widen<T>(scratch, offset<T>(kernel.grad, image * shape.out_size()), part.batch * shape.out_size()),
         .in = widen<T>(scratch, offset<T>(kernel.in, image * shape.in_size()), part.batch * shape.in_size()),
         .weight_grad = sums});
  });
  round_to<T>(kernel.weight_grad, sums, shape.weight_size(), kernel.accumulate);
}

}  // namespace

void run(OnCpu, Context& context, const Conv& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      convolve_16_bit<T>(context, kernel);
    } else {
      convolve<T>(context, kernel);
    }
  });
}

void run(OnCpu, Context& context, const ConvInGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      convolve_back_16_bit<T>(context, kernel);
    } else {
      convolve_back<T>(context, kernel);
    }
  });
}

void run(OnCpu, Context& context, const ConvWeightGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      weight_gradient_16_bit<T>(context, kernel);
    } else {
      weight_gradient<T>(context, kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
