#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tandem/kernels/cpu/isa/gemm_block.h>
#include <tandem/kernels/cpu/isa/gemm_dots.h>
#include <tandem/kernels/cpu/isa/gemm_lines.h>

// Blocks of a product: of the right side what fits in the second-level cache together with a block of the left one.
// Floats are read in place where that is faster; 16-bit elements, and floats that become bf16, are converted while they
// are packed.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

// How many columns of the weights an update has at a time. Long pieces of their rows are good for themselves, because
// each is fetched from memory anew. But if the shared cache is far away, half of a second-level cache of 2 MiB has to
// hold the right side, which each row of tiles reads.
inline constexpr std::int64_t kUpdateCols = 4096;
template <class Units>
std::int64_t update_cols(std::int64_t depth, bool long_rows) {
  constexpr std::int64_t kClose = std::int64_t{1} << 18;  // units
  return long_rows ? kUpdateCols : min(kUpdateCols / 2, kClose / units_of<Units>(depth) / kTileCols * kTileCols);
}

// The transposed way keeps the left side packed for all of the depth: up to 8 * kTileCols columns, here 16 MiB.
inline constexpr std::int64_t kDeepest = 16384;
// For up to so many rows the right side is passed over so few times that a copy of it costs more than it saves.
inline constexpr std::int64_t kFewRows = 28;
// A right side whose lines span up to so many floats, 256 KiB, stays in the second-level cache, where more rows can
// afford to read it in place.
inline constexpr std::int64_t kCloseRight = std::int64_t{1} << 16;
inline constexpr std::int64_t kFewRowsOfClose = 8 * kTileRows;

template <class Units, class T>
void multiply_direct(const Left<T>& left, const Right<T>& right, std::int64_t rows, std::int64_t cols,
                     std::int64_t depth, const Output<float>& out, ScratchArena& scratch) {
  constexpr bool kInPlace = std::is_same_v<Units, FloatUnits> && std::is_same_v<T, float>;
  const std::int64_t deep = block_depth<Units>(depth);
  // Without reuse a copy costs more than it saves; lines that share cache sets make it worth its while.
  const bool dense = right.col_stride == 1;
  const std::int64_t few_rows = depth * right.depth_stride <= kCloseRight ? kFewRowsOfClose : kFewRows;
  const bool pack_right = !kInPlace || !dense || (rows > few_rows && !stay_close(2 * deep, right.depth_stride));
  const bool close = left.row_major() ? rows_stay_close(left.row_stride) : stay_close(deep, left.depth_stride);
  const bool pack = !kInPlace || (cols > kTileCols && !close);
  const ScratchScope scope(scratch);
  const bool updates = out.update.update != nullptr;
  const std::int64_t block_rows = min(rows, block_rows_of<Units>());
  const std::int64_t block_cols = min(up(cols, kTileCols) * kTileCols,
                                      updates ? update_cols<Units>(deep, out.update.update->long_rows) : kBlockCols);
  const std::int64_t gradient_stride = block_cols + 16;
  float* gradients =
      updates ? scratch.allocate_array<float>(static_cast<std::size_t>(kStepRows * gradient_stride)) : nullptr;
  float* left_memory = pack ? scratch.allocate_array<float>(left_size(block_rows)) : nullptr;
  const std::int64_t most_units = units_of<Units>(deep) + kLanes;
  float* right_memory =
      pack_right ? scratch.allocate_array<float>(static_cast<std::size_t>(block_cols * most_units)) : nullptr;
  for (std::int64_t col = 0; col < cols; col += block_cols) {
    const std::int64_t here = min(block_cols, cols - col);
    for (std::int64_t k = 0; k < depth; k += deep) {
      const std::int64_t count = min(deep, depth - k);
      const Right<T> from = right.at(k, col);
      Panels panels{right_memory, kTileCols, kTileCols * units_of<Units>(count)};
      if (!pack_right) {
        if constexpr (kInPlace) {
          panels = {from.data, from.depth_stride, 0};
        }
      } else if (dense) {
        pack_panels<Units>(from.data, from.depth_stride, count, here, right_memory);
      } else {
        pack_transposed<Units>(from.data, from.col_stride, count, here, right_memory);
      }
      const Epilogue epilogue = part_of(out.epilogue, k, k + count, depth);
      for (std::int64_t row = 0; row < rows; row += block_rows) {
        const std::int64_t rows_here = min(block_rows, rows - row);
        Output<float> to = Output<float>{out.data, out.stride, epilogue, out.is_far}.at(row, col);
        const bool takes = updates && k + count == depth;  // else these are sums of a part of the depth
        if (takes) {
          to = {gradients, gradient_stride, {}, false, out.update.at(row, col)};
          to.update.add = epilogue.add;
        }
        multiply_block<Units>(left.at(row, k), rows_here, count, left_memory, panels, here, to);
      }
    }
  }
}

// out^T = right^T left^T, for a wide right side that lies dense along its depth, as weights [out, in] do. Then the left
// side and the outputs have to be transposed, and not the right side. They are smaller when there are few rows.
template <class Units, class T>
void multiply_transposed(const Left<T>& left, const Right<T>& right, std::int64_t rows, std::int64_t cols,
                         std::int64_t depth, const Output<T>& out, ScratchArena& scratch) {
  constexpr bool kInPlace = std::is_same_v<Units, FloatUnits> && std::is_same_v<T, float>;
  const std::int64_t deep = block_depth<Units>(depth);
  const bool pack = !kInPlace || (rows > kTileCols && !rows_stay_close(right.col_stride));
  // A right side of so many bytes comes from memory. The matrix unit's tiles are too short to fetch anything meanwhile.
  constexpr std::int64_t kFarBytes = std::int64_t{1} << 21;
  const bool fetches = pack && Units::kStep == 1 && depth * cols * std::int64_t{sizeof(T)} >= kFarBytes;
  const ScratchScope scope(scratch);
  constexpr std::int64_t kRowsAtOnce = 8 * kTileCols;
  const std::int64_t wide = min(up(rows, kTileCols) * kTileCols, kRowsAtOnce);
  constexpr std::int64_t kHigh = up(block_rows_of<Units>(), kLanes) * kLanes;
  const std::int64_t high = min(cols, kHigh);
  const std::int64_t sums_stride = wide + kLanes;
  const std::int64_t units = units_of<Units>(depth);
  float* packed = scratch.allocate_array<float>(static_cast<std::size_t>(wide * (units + kLanes)));
  float* left_memory = scratch.allocate_array<float>(left_size(high));
  float* sums = scratch.allocate_array<float>(static_cast<std::size_t>(high * sums_stride));
  for (std::int64_t row = 0; row < rows; row += wide) {
    const std::int64_t rows_here = min(wide, rows - row);
    for (std::int64_t k = 0; k < depth; k += deep) {
      pack_transposed<Units>(left.at(row, k).data, left.row_stride, min(deep, depth - k), rows_here,
                             packed + k / Units::kDepth * wide);
    }
    for (std::int64_t col = 0; col < cols; col += high) {
      const std::int64_t cols_here = min(high, cols - col);
      for (std::int64_t k = 0; k < depth; k += deep) {
        const std::int64_t count = min(deep, depth - k);
        const Right<T> from = right.at(k, col);
        Ahead ahead;
        if (fetches) {
          const bool same_cols = k + count < depth;
          const Right<T> next = same_cols ? right.at(k + count, col) : right.at(0, col + cols_here);
          ahead =
              Ahead(next.data, next.col_stride, same_cols ? cols_here : min(high, cols - col - cols_here),
                    min(deep, same_cols ? depth - k - count : depth),
                    up(cols_here, TileShape::of<Units>(cols_here, rows_here, true).rows) * up(rows_here, kTileCols));
        }
        const Panels panels{packed + k / Units::kDepth * wide, kTileCols, kTileCols * units_of<Units>(count)};
        multiply_block<Units>(Left<T>{from.data, from.col_stride, 1}, cols_here, count, pack ? left_memory : nullptr,
                              panels, rows_here, {sums, sums_stride, {.add = k > 0}}, ahead);
      }
      const Output<T> to = out.at(row, col);
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

// The direct way for outputs of 16 bits: floats sum them up, some rows and columns at a time, and are rounded at the
// end.
template <class Units, class T>
void multiply_rounded(const Left<T>& left, const Right<T>& right, std::int64_t rows, std::int64_t cols,
                      std::int64_t depth, const Output<T>& out, ScratchArena& scratch) {
  constexpr std::int64_t kRows = 512;
  constexpr std::int64_t kCols = 256;
  const ScratchScope scope(scratch);
  const std::int64_t stride = min(up(cols, kLanes) * kLanes, kCols) + kLanes;
  float* const sums = scratch.allocate_array<float>(static_cast<std::size_t>(min(rows, kRows) * stride));
  for (std::int64_t row = 0; row < rows; row += kRows) {
    const std::int64_t rows_here = min(kRows, rows - row);
    for (std::int64_t col = 0; col < cols; col += kCols) {
      const std::int64_t cols_here = min(kCols, cols - col);
      multiply_direct<Units>(left.at(row, 0), right.at(0, col), rows_here, cols_here, depth, {sums, stride, {}},
                             scratch);
      const Output<T> to = out.at(row, col);
      for (std::int64_t r = 0; r < rows_here; ++r) {
        for (std::int64_t c = 0; c < cols_here; c += kLanes) {
          finish(to.epilogue, r, c, load(sums + r * stride + c), first(cols_here - c), to.data + r * to.stride + c);
        }
      }
    }
  }
}

// The direct way, or that along lines.
template <class Units>
void multiply_untransposed(const Left<float>& left, const Right<float>& right, std::int64_t rows, std::int64_t cols,
                           std::int64_t depth, const Output<float>& out, ScratchArena& scratch) {
  if constexpr (std::is_same_v<Units, FloatUnits>) {
    constexpr std::int64_t kFarRight = std::int64_t{1} << 18;  // elements, more than most second-level caches hold
    constexpr std::int64_t kLong = 512;                        // shorter lines are not worth the calls
    const bool is_far = (rows <= kFewLines && depth * cols >= kFarRight) || (depth <= kFewLines && out.is_far);
    if (is_far && cols >= kLong && right.col_stride == 1 && out.update.update == nullptr) {
      return multiply_lines(left, right, rows, cols, depth, out, scratch);
    }
  }
  multiply_direct<Units>(left, right, rows, cols, depth, out, scratch);
}

/// The product of a block of outputs of the type T, which the operands have too.
template <class Units, class T>
void multiply(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate* update) {
  const Left<T> left{static_cast<const T*>(kernel.a.data) + block.row * kernel.a.row_stride, kernel.a.row_stride,
                     kernel.a.col_stride};
  const Right<T> right{static_cast<const T*>(kernel.b.data) + block.col * kernel.b.col_stride, kernel.b.row_stride,
                       kernel.b.col_stride};
  const EpilogueOf<T> whole{.add = kernel.accumulate == Accumulate::yes,
                            .relu = kernel.after.relu,
                            .bias = static_cast<const T*>(kernel.after.bias),
                            .mask = static_cast<const T*>(kernel.after.relu_mask),
                            .mask_stride = kernel.out_stride};
  const Output<T> out = Output<T>{static_cast<T*>(kernel.out), kernel.out_stride, whole,
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
  const bool transposes = right.col_stride != 1 && left.row_major() &&
                          kernel.m * (kernel.k + kernel.n) < kernel.n * kernel.k && kernel.k <= kDeepest;
  if (transposes) {
    return multiply_transposed<Units>(left, right, rows, cols, kernel.k, out, scratch);
  }
  if constexpr (std::is_same_v<T, float>) {
    // A vector: its length becomes columns.
    if (kernel.n == 1 && kernel.out_stride == 1 && kernel.after.bias == nullptr && right.depth_stride == 1) {
      const Left<T> row{right.data, right.col_stride, right.depth_stride};
      const Right<T> columns{left.data, left.depth_stride, left.row_stride};
      return multiply_untransposed<Units>(row, columns, 1, rows, kernel.k, out, scratch);
    }
    multiply_untransposed<Units>(left, right, rows, cols, kernel.k, out, scratch);
  } else {
    multiply_rounded<Units>(left, right, rows, cols, kernel.k, out, scratch);
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
