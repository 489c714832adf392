#include <tandem/kernels/conv.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/conv_in_grad.h>
#include <tandem/kernels/cpu/patch_product.h>
#include <tandem/kernels/cpu/widened_conv.h>
#include <tandem/kernels/cpu/winograd.h>

// Convolutions as products with patches. All cuts follow from sizes.

namespace tandem::inline v0::kernels {

namespace {

using cpu::kChunkWork;
using cpu::offset;
using cpu::PatchAxis;
using cpu::Patches;
using cpu::PatchGradient;
using cpu::PatchProduct;
using cpu::up;

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
  const PatchProduct product{.patches = patches_of(shape, kernel.in),
                             .weight = kernel.weight,
                             .rows = shape.out_channels,
                             .bias = kernel.bias,
                             .add = kernel.accumulate == Accumulate::yes,
                             .out = {kernel.out, shape.out_size(), plane, shape.out[1], 1},
                             .relu = kernel.relu};
  if constexpr (std::is_same_v<T, float>) {
    if (cpu::takes_winograd(product.patches, product.rows)) {
      return cpu::multiply_winograd(context, product, {.output_stride = shape.depth(), .channel_stride = 9},
                                    shape.groups);
    }
  }
  cpu::multiply_groups<T>(context, product, shape.groups);
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

// The gradient of the weights of all groups, with lanes along the lines of the images. `gradient` is that of group 0.
void gradient_of_lines(Context& context, const PatchGradient& gradient, std::int64_t groups, bool add, float* out) {
  const Patches& patches = gradient.patches;
  const std::int64_t size = gradient.rows * patches.depth();
  const std::int64_t lines = patches.images * patches.y.positions;
  const std::int64_t wanted = std::clamp<std::int64_t>(patches.columns() / (groups * Parts::kColumns), 1, Parts::kMost);
  const std::int64_t some = up(lines, wanted);
  const std::int64_t parts = up(lines, some);
  const Device device = context.device;
  const ScratchScope scope(context.scratch);
  float* const sums = context.scratch.allocate_array<float>(static_cast<std::size_t>(parts * groups * size));
  const std::int64_t work = size * some * patches.x.positions;
  core::parallel_for(parts * groups, 1 + kChunkWork / (work + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t line = task / groups * some;
      const cpu::LineRange range{task % groups, line, std::min(line + some, lines)};
      TANDEM_BY_ISA(line_gradient_f32)(gradient, range, sums + task * size, context_for(device).scratch);
    }
  });
  for (std::int64_t i = 0; i < groups * size; ++i) {
    float total = sums[i];
    for (std::int64_t part = 1; part < parts; ++part) {
      total += sums[part * groups * size + i];
    }
    out[i] = add ? out[i] + total : total;
  }
}

// The gradient of the weights of some groups: `gradient` has those of the first one.
template <class T>
void gradient_of_groups(Context& context, const PatchGradient& gradient, std::int64_t groups, bool add, T* out) {
  const std::int64_t depth = gradient.patches.depth();
  const std::int64_t columns = gradient.patches.columns();
  if constexpr (std::is_same_v<T, float>) {
    if (TANDEM_BY_ISA(line_gradient_pays)(gradient)) {
      return gradient_of_lines(context, gradient, groups, add, out);
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
  if constexpr (std::is_same_v<T, float>) {
    if (cpu::takes_winograd(patches, shape.out_channels)) {
      const PatchGradient gradient{
          .patches = patches, .grad = kernel.grad, .grad_image_stride = shape.out_size(), .rows = shape.out_channels};
      cpu::winograd_gradient(context, gradient, shape.groups, add, out);
      return;
    }
  }
  cpu::for_some_weights(shape.groups, shape.out_channels, shape.depth(),
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

}  // namespace

void run(OnCpu, Context& context, const Conv& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      cpu::convolve_widened<T>(context, kernel);
    } else {
      convolve<T>(context, kernel);
    }
  });
}

void run(OnCpu, Context& context, const ConvInGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      cpu::convolve_back_widened<T>(context, kernel);
    } else {
      cpu::convolve_back<T>(context, kernel);
    }
  });
}

void run(OnCpu, Context& context, const ConvWeightGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "conv", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      cpu::weight_gradient_widened<T>(context, kernel);
    } else {
      weight_gradient<T>(context, kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
