#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/scratch.h>

// A convolution as a product: of a weight [rows, depth] with the patches [depth, columns] of images, which exist only
// in blocks. A column is a position of a window in an image; positions are counted row by row, image after image. The
// depth counts (channel, place in the window).

namespace tandem::inline v0::kernels::cpu {

/// Positions and window along one dimension. Tap t at position p reads element first + p * step + t * tap_step of the
/// image, which is 0 unless it is one of [0, size).
struct PatchAxis {
  std::int64_t size;
  std::int64_t positions;
  std::int64_t step;
  std::int64_t first;
  std::int64_t taps, tap_step;

  [[gnu::always_inline]] std::int64_t at(std::int64_t position, std::int64_t tap) const {
    return first + position * step + tap * tap_step;
  }
  /// The smallest and the largest element that position 0 reads.
  [[gnu::always_inline]] std::int64_t low() const { return tap_step < 0 ? at(0, taps - 1) : first; }
  [[gnu::always_inline]] std::int64_t high() const { return tap_step < 0 ? first : at(0, taps - 1); }
  /// Whether no tap of any position reads outside.
  [[gnu::always_inline]] bool is_inside() const { return low() >= 0 && high() + (positions - 1) * step < size; }
};

/// The patches of `channels` channels, which lie y.size * x.size elements apart.
///
/// There may be more positions along x than the `width` that anyone wants. With as many as the padded line of an image
/// has elements, all columns of an image are neighbours: none has to be packed, and those behind the width are computed
/// for nothing.
struct Patches {
  const void* data;
  std::int64_t images;
  std::int64_t image_stride;
  std::int64_t channels;
  PatchAxis y, x;
  std::int64_t width = x.positions;
  /// Whether the depth counts (row of the window, channel, place in the row) instead. Rows of the window that read only
  /// what lies outside are then left out. Only where all channels fit in the slab, for f32 with fused multiply-adds.
  bool rows_first = false;

  [[gnu::always_inline]] std::int64_t taps() const { return y.taps * x.taps; }
  [[gnu::always_inline]] std::int64_t depth() const { return channels * taps(); }
  [[gnu::always_inline]] std::int64_t positions() const { return y.positions * x.positions; }
  [[gnu::always_inline]] std::int64_t columns() const { return images * positions(); }
};

/// The floats that a block's copy of images may have, unless one channel of one image has more.
inline constexpr std::int64_t kSlab = std::int64_t{1} << 20;

/// The elements of a channel that a block reads of one image, at most: of padded lines.
[[gnu::always_inline]] inline std::int64_t padded_lines(const Patches& patches, std::int64_t rows_of_positions) {
  const PatchAxis& y = patches.y;
  const PatchAxis& x = patches.x;
  const std::int64_t rows = rows_of_positions < y.positions ? rows_of_positions : y.positions;
  return ((rows - 1) * y.step + y.high() - y.low() + 1) * ((x.positions - 1) * x.step + x.high() - x.low() + 1);
}

/// How many columns a block may have: at most `most`, and of so few images that a channel of them fits in the slab.
[[gnu::always_inline]] inline std::int64_t columns_of_block(const Patches& patches, std::int64_t most) {
  const std::int64_t images = kSlab / (padded_lines(patches, patches.y.positions) + 1);
  const std::int64_t columns = (images < 1 ? 1 : images) * patches.positions();
  return columns < most ? columns : most;
}

/// How deep a block may be: at most `most`, and of so few channels that they fit in the slab.
[[gnu::always_inline]] inline std::int64_t depth_of_block(const Patches& patches, std::int64_t columns,
                                                          std::int64_t most) {
  const std::int64_t positions = patches.positions();
  const std::int64_t images = columns <= positions ? 2 : columns / positions + 2;
  const std::int64_t rows = columns / patches.x.positions + 2;
  const std::int64_t channels = kSlab / (images * padded_lines(patches, rows) + 1);
  const std::int64_t depth = patches.rows_first ? most : (channels < 2 ? 1 : channels - 1) * patches.taps();
  return depth < most ? depth : most;
}

/// Where a row and a column of the product belong: rows are channels.
struct Places {
  void* data;
  std::int64_t image_stride, channel_stride;
  std::int64_t y_stride, x_stride;  // between positions

  /// Whether the positions of an image lie side by side.
  [[gnu::always_inline]] bool is_dense(const Patches& patches) const {
    return x_stride == 1 && y_stride == patches.x.positions && patches.width == patches.x.positions;
  }
};

/// The places in a row of the window that a depthwise product has at most.
inline constexpr std::int64_t kDepthwiseTaps = 32;

/// out (+)= weight * patches + bias; then max(out, 0) if `relu`.
struct PatchProduct {
  Patches patches;
  const void* weight;  // [rows, depth]
  std::int64_t rows;
  const void* bias;  // [rows], or null
  bool add;
  Places out;
  bool relu = false;

  /// The product of another group, whose channels, weight, bias and rows follow those of the group before.
  template <class T>
  [[gnu::always_inline]] PatchProduct of_group(std::int64_t group) const {
    PatchProduct moved = *this;
    moved.patches.data =
        static_cast<const T*>(patches.data) + group * patches.channels * patches.y.size * patches.x.size;
    moved.weight = static_cast<const T*>(weight) + group * rows * patches.depth();
    moved.bias = bias == nullptr ? nullptr : static_cast<const T*>(bias) + group * rows;
    moved.out.data = static_cast<T*>(out.data) + group * rows * out.channel_stride;
    return moved;
  }
};

/// A part of the work on a product: columns [begin, end) of groups [group, last_group). They are at most kPatchColumns,
/// of one image where images have blocks of their own.
struct PatchRange {
  std::int64_t group, last_group;
  std::int64_t begin, end;
};

/// The columns that a block has at most. Images of at least kOwnBlocks columns have blocks of their own, which write to
/// their places directly.
inline constexpr std::int64_t kPatchColumns = 512;
inline constexpr std::int64_t kOwnBlocks = 128;

/// sums[depth, rows] = patches * grad^T, whose transpose is the gradient of the weight. The fields are those of group
/// 0; the images, the gradients and the sums of a group follow those of the group before.
struct PatchGradient {
  Patches patches;
  const void* grad;  // rows as channels, positions side by side
  std::int64_t grad_image_stride;
  std::int64_t rows;

  /// That of another group.
  template <class T>
  [[gnu::always_inline]] PatchGradient of_group(std::int64_t group) const {
    PatchGradient moved = *this;
    moved.patches.data =
        static_cast<const T*>(patches.data) + group * patches.channels * patches.y.size * patches.x.size;
    moved.grad = static_cast<const T*>(grad) + group * rows * patches.positions();
    return moved;
  }
};

/// A part of the work on a gradient: depths [first, last) of the sums over columns [begin, end), of groups [group,
/// last_group). The sums of a group are [depth, rows]; or [rows, depth], like the weights, and added to what is there
/// if `add`.
struct GradientRange {
  std::int64_t group, last_group;
  std::int64_t begin, end;
  std::int64_t first, last;
  bool like_weights = false;
  bool add = false;
};

/// A part of the work on the gradient of few outputs: lines of positions [begin, end) of a group, counted image after
/// image.
struct LineRange {
  std::int64_t group;
  std::int64_t begin, end;
};

/// The places of a window's row that line_gradient_f32() takes at most.
inline constexpr int kLineTaps = 8;

// The blocks of tandem's own products, for f32 where the machine has fused multiply-adds: the cut into ranges changes
// no bit there. Those of Eigen's products for f64, and for f32 elsewhere.
TANDEM_FOR_EACH_ISA(
    /* `product` is that of group 0. */
    void patch_product_f32(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch);
    void patch_product_f64(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch);
    /* Groups of one channel, with positions one step apart: planes [begin, end) of (image, group). */
    void depthwise_f32(const PatchProduct& product, std::int64_t groups, std::int64_t begin, std::int64_t end);
    /* Whether the gradient is faster along the lines of the images than with lanes of outputs. */
    bool line_gradient_pays(const PatchGradient& gradient);
    /* sums[rows, depth] = such a gradient. */
    void line_gradient_f32(const PatchGradient& gradient, const LineRange& range, float* sums, ScratchArena& scratch);
    /* `sums` are those of group 0. */
    void patch_gradient_f32(const PatchGradient& gradient, const GradientRange& range, float* sums,
                            ScratchArena& scratch);
    void patch_gradient_f64(const PatchGradient& gradient, const GradientRange& range, double* sums,
                            ScratchArena& scratch);
    /* out[cols, rows] (+)= the sum of `parts` matrices [rows, cols], `stride` elements apart. */
    void add_transposed_f32(const float* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows,
                            std::int64_t cols, bool add, float* out);
    void add_transposed_f64(const double* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows,
                            std::int64_t cols, bool add, double* out);)

}  // namespace tandem::inline v0::kernels::cpu
