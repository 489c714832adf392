#include <tandem/kernels/cpu/gemm.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/gemm_block.h>

// Blocks of a product: of the right side what fits in the second-level cache together with a block of the left one.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Products with so few rows or columns that a tile would be all but empty: each output is a dot product along the
// depth.

// The sums of the lanes of each of the registers, in one.
TANDEM_SIMD Vec sum_lanes(Vec (&r)[kLanes]) {
  transpose(r);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      r[i] += r[i + half];
    }
  }
  return r[0];
}

// Lane i: the dot product of row i of `left`, rows `stride` apart, with `right`. kAll: rows is kLanes.
template <bool kAll>
TANDEM_SIMD Vec dots(const float* left, std::int64_t stride, std::int64_t rows, const float* right,
                     std::int64_t depth) {
  Vec sums[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    sums[r] = broadcast(0);
  }
  const auto add = [&](std::int64_t k, auto... lanes) {
    const Vec b = load(right + k, lanes...);
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
      if (kAll || r < rows) {
        sums[r] = fma(load(left + r * stride + k, lanes...), b, sums[r]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    add(k);
  }
  if (k < depth) {
    add(k, first(depth - k));
  }
  return sum_lanes(sums);
}

// An update has long pieces of the weights' rows, because each piece is fetched from memory anew: with 512 columns a
// large product with Adam takes 10 % longer than with 4,096.
constexpr std::int64_t kUpdateCols = 4096;
constexpr std::int64_t kGradientStride = kUpdateCols + 16;

constexpr std::int64_t kFew = 3;  // rows or columns whose outputs are dot products
// The transposed way keeps the left side packed for all of the depth: up to 8 * kTileCols columns, here 16 MiB.
constexpr std::int64_t kDeepest = 16384;
// For up to so many rows the right side is passed over so few times that a copy of it costs more than it saves.
constexpr std::int64_t kFewRows = 28;

struct Right {
  const float* data;
  std::int64_t depth_stride, col_stride;

  Right at(std::int64_t k, std::int64_t col) const {
    return {data + k * depth_stride + col * col_stride, depth_stride, col_stride};
  }
};

struct TileShape {
  std::int64_t rows, cols;
};

// Rows of equal height in the fewest tiles: a tile of two rows would leave the arithmetic units idle. A flat tile is
// wider than a packed panel.
TileShape tile_shape(std::int64_t rows, std::int64_t cols, bool packed) {
  if (cols <= kLanes) {
    return {up(rows, up(rows, kTallRows)), kLanes};
  }
  if (rows <= 2 * kFlatRows && !packed) {
    return {up(rows, up(rows, kFlatRows)), kFlatCols};
  }
  return {up(rows, up(rows, kTileRows)), kTileCols};
}

void pack_left(const Left& left, std::int64_t rows, std::int64_t depth, std::int64_t height, float* to) {
  if (left.row_major()) {
    copy_lines(left.data, left.row_stride, rows, depth, to, kLeftStride);
    return;
  }
  for (std::int64_t row = 0; row < rows; row += height) {
    copy_lines(left.data + row, left.depth_stride, depth, min(height, rows - row), to + row * depth, height);
  }
}

}  // namespace

void multiply_block(const Left& left, std::int64_t rows, std::int64_t depth, float* left_memory, const Panels& right,
                    std::int64_t cols, const Output& out) {
  const auto [height, width] = tile_shape(rows, cols, right.packed());
  LeftOrder order = left.row_major() ? LeftOrder::by_rows : LeftOrder::by_depth;
  const float* left_data = left.data;
  std::int64_t left_step = height * left.row_stride;
  std::int64_t left_stride = left.stride();
  if (left_memory != nullptr) {
    pack_left(left, rows, depth, height, left_memory);
    order = left.row_major() ? LeftOrder::packed_rows : LeftOrder::by_depth;
    left_data = left_memory;
    left_step = height * (left.row_major() ? kLeftStride : depth);
    left_stride = height;
  }
  // Tiles go down a panel of the right side, which then stays close. With an update they go along a row of tiles, and
  // the output has the memory of one.
  const bool updates = out.update.update != nullptr;
  const std::int64_t strip = updates ? height : rows;
  for (std::int64_t top = 0; top < rows; top += strip, left_data += left_step) {
    const std::int64_t bottom = min(top + strip, rows);
    for (std::int64_t col = 0; col < cols; col += width) {
      const float* left_tile = left_data;
      const std::int64_t wide = min(width, cols - col);
      for (std::int64_t row = top; row < bottom; row += height, left_tile += left_step) {
        const std::int64_t high = min(height, bottom - row);
        if (updates) {
          fetch_tile(out.update.at(row, col), high, wide);
        }
        // One epilogue for all tiles: a copy of it for each would be read back before its parts have left the store
        // buffer, where they stand behind all outputs of the tile before (12 % of a step).
        tile_function(high, wide, order)({.row = row,
                                          .col = col,
                                          .depth = depth,
                                          .left = left_tile,
                                          .left_stride = left_stride,
                                          .right = right.at(col),
                                          .right_stride = right.stride,
                                          .cols = wide,
                                          .out = out.data + (row - top) * out.stride + col,
                                          .out_stride = out.stride,
                                          .is_out_far = out.is_far},
                                         out.epilogue);
      }
    }
    if (updates) {
      update_block(out.update.at(top, 0), {out.data, out.stride, bottom - top, cols});
    }
  }
}

namespace {

void multiply_direct(const Left& left, const Right& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                     const Output& out, ScratchArena& scratch) {
  const std::int64_t deep = block_depth(depth);
  // Without reuse a copy costs more than it saves; lines that share cache sets make it worth its while.
  const bool dense = right.col_stride == 1;
  const bool pack_right = !dense || (rows > kFewRows && !stay_close(2 * deep, right.depth_stride));
  const bool pack =
      cols > kTileCols && !(left.row_major() ? rows_stay_close(left.row_stride) : stay_close(deep, left.depth_stride));
  const ScratchScope scope(scratch);
  const bool updates = out.update.update != nullptr;
  const std::int64_t block_rows = min(rows, kBlockRows);
  const std::int64_t block_cols = min(up(cols, kTileCols) * kTileCols, updates ? kUpdateCols : kBlockCols);
  float* gradients =
      updates ? scratch.allocate_array<float>(static_cast<std::size_t>(kTallRows * kGradientStride)) : nullptr;
  float* left_memory = pack ? scratch.allocate_array<float>(left_size(block_rows)) : nullptr;
  float* right_memory =
      pack_right ? scratch.allocate_array<float>(static_cast<std::size_t>(block_cols * (deep + kLanes))) : nullptr;
  for (std::int64_t col = 0; col < cols; col += block_cols) {
    const std::int64_t here = min(block_cols, cols - col);
    for (std::int64_t k = 0; k < depth; k += deep) {
      const std::int64_t count = min(deep, depth - k);
      const Right from = right.at(k, col);
      if (pack_right) {
        dense ? pack_panels(from.data, from.depth_stride, count, here, right_memory)
              : pack_transposed(from.data, from.col_stride, count, here, right_memory);
      }
      const Epilogue epilogue = part_of(out.epilogue, k, k + count, depth);
      for (std::int64_t row = 0; row < rows; row += block_rows) {
        const std::int64_t rows_here = min(block_rows, rows - row);
        Output to = Output{out.data, out.stride, epilogue, out.is_far}.at(row, col);
        const bool takes = updates && k + count == depth;  // else these are sums of a part of the depth
        if (takes) {
          to = {gradients, kGradientStride, {}, false, out.update.at(row, col)};
          to.update.add = epilogue.add;
        }
        multiply_block(
            left.at(row, k), rows_here, count, left_memory,
            pack_right ? Panels{right_memory, kTileCols, kTileCols * count} : Panels{from.data, from.depth_stride, 0},
            here, to);
      }
    }
  }
}

// out^T = right^T left^T: for a wide right side that lies dense along its depth, as weights [out, in] do. Not it has to
// be transposed but the left side and the outputs, which are smaller when there are few rows.
void multiply_transposed(const Left& left, const Right& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                         const Output& out, ScratchArena& scratch) {
  const std::int64_t deep = block_depth(depth);
  const bool pack = rows > kTileCols && !rows_stay_close(right.col_stride);
  const ScratchScope scope(scratch);
  constexpr std::int64_t kRowsAtOnce = 8 * kTileCols;
  const std::int64_t wide = min(up(rows, kTileCols) * kTileCols, kRowsAtOnce);
  constexpr std::int64_t kHigh = up(kBlockRows, kLanes) * kLanes;
  const std::int64_t high = min(cols, kHigh);
  const std::int64_t sums_stride = wide + kLanes;
  float* packed = scratch.allocate_array<float>(static_cast<std::size_t>(wide * (depth + kLanes)));
  float* left_memory = scratch.allocate_array<float>(left_size(high));
  float* sums = scratch.allocate_array<float>(static_cast<std::size_t>(high * sums_stride));
  for (std::int64_t row = 0; row < rows; row += wide) {
    const std::int64_t rows_here = min(wide, rows - row);
    for (std::int64_t k = 0; k < depth; k += deep) {
      pack_transposed(left.at(row, k).data, left.row_stride, min(deep, depth - k), rows_here, packed + k * wide);
    }
    for (std::int64_t col = 0; col < cols; col += high) {
      const std::int64_t cols_here = min(high, cols - col);
      for (std::int64_t k = 0; k < depth; k += deep) {
        const std::int64_t count = min(deep, depth - k);
        const Right from = right.at(k, col);
        multiply_block({from.data, from.col_stride, 1}, cols_here, count, pack ? left_memory : nullptr,
                       {packed + k * wide, kTileCols, kTileCols * count}, rows_here,
                       {sums, sums_stride, {.add = k > 0}});
      }
      const Output to = out.at(row, col);
      for (std::int64_t i = 0; i < rows_here; i += kLanes) {
        for (std::int64_t j = 0; j < cols_here; j += kLanes) {
          const Mask lanes = first(cols_here - j);
          transpose_square(sums + j * sums_stride + i, sums_stride, min(kLanes, cols_here - j),
                           min(kLanes, rows_here - i), [&](std::int64_t r, Vec v) {
                             finish(to.epilogue, i + r, j, v, lanes, to.data + (i + r) * to.stride + j);
                           });
        }
      }
    }
  }
}

// For few rows and many columns, both sides dense along the depth: a layer's forward pass of a few samples. The weights
// are read once for each row.
void multiply_rows(const Left& left, const Right& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                   const Output& out) {
  for (std::int64_t col = 0; col < cols; col += kLanes) {
    const std::int64_t here = min(kLanes, cols - col);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* a = left.at(row, 0).data;
      const float* b = right.at(0, col).data;
      const Vec sums = here == kLanes ? dots<true>(b, right.col_stride, here, a, depth)
                                      : dots<false>(b, right.col_stride, here, a, depth);
      finish(out.epilogue, row, col, sums, first(here), out.data + row * out.stride + col);
    }
  }
}

// finish() for outputs of one column that lie side by side.
TANDEM_SIMD void finish_column(const Epilogue& epilogue, std::int64_t row, Vec sum, Mask lanes, float* out) {
  if (epilogue.add) {
    sum += load(out, lanes);
  }
  if (epilogue.bias != nullptr) {
    sum += broadcast(*epilogue.bias);
  }
  if (epilogue.relu) {
    sum = max(broadcast(0), sum);
  }
  if (epilogue.mask != nullptr) {
    sum = unless_off(load(epilogue.mask + row, lanes), sum);
  }
  store(out, sum, lanes);
}

// For few columns, both sides dense along the depth.
void multiply_dots(const Left& left, const Right& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                   const Output& out) {
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    const std::int64_t here = min(kLanes, rows - row);
    for (std::int64_t col = 0; col < cols; ++col) {
      alignas(64) float sums[kLanes];
      const float* a = left.at(row, 0).data;
      const float* b = right.at(0, col).data;
      const Vec all = here == kLanes ? dots<true>(a, left.row_stride, here, b, depth)
                                     : dots<false>(a, left.row_stride, here, b, depth);
      if (out.stride == 1) {
        finish_column(out.epilogue, row, all, first(here), out.data + row);
        continue;
      }
      store(sums, all);
      for (std::int64_t r = 0; r < here; ++r) {
        finish(out.epilogue, row + r, col, broadcast(sums[r]), first(1), out.data + (row + r) * out.stride + col);
      }
    }
  }
}

}  // namespace

void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate* update) {
  const Left left{static_cast<const float*>(kernel.a.data) + block.row * kernel.a.row_stride, kernel.a.row_stride,
                  kernel.a.col_stride};
  const Right right{static_cast<const float*>(kernel.b.data) + block.col * kernel.b.col_stride, kernel.b.row_stride,
                    kernel.b.col_stride};
  const Epilogue whole{.add = kernel.accumulate == Accumulate::yes,
                       .relu = kernel.after.relu,
                       .bias = static_cast<const float*>(kernel.after.bias),
                       .mask = static_cast<const float*>(kernel.after.relu_mask),
                       .mask_stride = kernel.out_stride};
  const Output out = Output{static_cast<float*>(kernel.out), kernel.out_stride, whole,
                            kernel.m * kernel.n >= kFarOutputs, UpdateAt{update, 0, kernel.out_stride}}
                         .at(block.row, block.col);
  const std::int64_t rows = block.rows;
  const std::int64_t cols = block.cols;
  if (rows == 0 || cols == 0) {
    return;
  }
  // By the sizes of all of the product: the ways do not round alike.
  if (left.row_major() && right.depth_stride == 1 && kernel.n <= kFew) {
    return multiply_dots(left, right, rows, cols, kernel.k, out);
  }
  if (left.row_major() && right.depth_stride == 1 && kernel.m <= kFew) {
    return multiply_rows(left, right, rows, cols, kernel.k, out);
  }
  // A vector: its length becomes columns.
  if (kernel.n == 1 && kernel.out_stride == 1 && kernel.after.bias == nullptr && right.depth_stride == 1) {
    const Left row{right.data, right.col_stride, right.depth_stride};
    const Right columns{left.data, left.depth_stride, left.row_stride};
    return multiply_direct(row, columns, 1, rows, kernel.k, out, scratch);
  }
  const bool transposes = right.col_stride != 1 && left.row_major() &&
                          kernel.m * (kernel.k + kernel.n) < kernel.n * kernel.k && kernel.k <= kDeepest;
  (transposes ? multiply_transposed : multiply_direct)(left, right, rows, cols, kernel.k, out, scratch);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
