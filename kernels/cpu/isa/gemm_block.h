#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cpu/isa/gemm_pack.h>
#include <tandem/kernels/cpu/isa/gemm_update.h>

// The parts of a product that its callers put together: a block of it, from operands that lie packed or in place.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Columns of the right side and rows of the left one that are packed at a time.
inline constexpr std::int64_t kBlockCols = 32 * kTileCols;
inline constexpr std::int64_t kBlockRows = 12 * kTileRows;

/// Outputs of so many elements do not stay in the second-level cache: fetching a tile's lines while its depth runs is
/// worth 7 to 9 % then. It costs 1 to 10 % for outputs that are in a cache.
inline constexpr std::int64_t kFarOutputs = std::int64_t{1} << 19;

constexpr std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// How deep each of the blocks is that a depth is cut into.
constexpr std::int64_t block_depth(std::int64_t depth) { return up(depth, up(depth, kDepth)); }

/// The left side of a product: element (row, k).
struct Left {
  const float* data;
  std::int64_t row_stride, depth_stride;  // one of them is 1
  bool row_major() const { return depth_stride == 1; }
  std::int64_t stride() const { return row_major() ? row_stride : depth_stride; }

  Left at(std::int64_t row, std::int64_t k) const {
    return {data + row * row_stride + k * depth_stride, row_stride, depth_stride};
  }
};

/// Whether so many lines, `stride` elements apart, stay close to the processor while they are read side by side: in the
/// first-level cache, where the low 12 bits of an address choose one of 64 sets of 8 to 12 places, and in its table of
/// pages.
inline bool stay_close(std::int64_t lines, std::int64_t stride, std::int64_t places = 4) {
  constexpr std::int64_t kPage = 4096;
  const std::int64_t bytes = stride * std::int64_t{sizeof(float)};
  const std::int64_t step = bytes & -bytes;  // the largest power of two in it
  return lines * (step < 64 ? 64 : step) <= places * kPage && lines * bytes <= 48 * kPage;
}

/// The rows of a tile, of which each line is read in one go and then not again: it may share its set with more others.
inline bool rows_stay_close(std::int64_t stride) { return stay_close(kTileRows, stride, 7); }

/// Floats that pack_left() writes at most for so many rows: tiles by depth are as deep as kDepth and of equal height,
/// so the last of them may stand over.
constexpr std::size_t left_size(std::int64_t rows) {
  return static_cast<std::size_t>((rows + kTallRows) * kLeftStride);
}

/// The outputs of a block.
struct Output {
  float* data;
  std::int64_t stride;
  Epilogue epilogue;
  bool is_far = false;
  UpdateAt update{};  // takes the outputs, if there is one

  Output at(std::int64_t row, std::int64_t col) const {
    return {data + row * stride + col, stride, epilogue.at(row, col), is_far, update.at(row, col)};
  }
};

/// The right side of a block: where it lies, or packed to panels of kTileCols columns.
struct Panels {
  const float* data;
  std::int64_t stride;        // from one k to the next
  std::int64_t panel_stride;  // 0 unless packed
  bool packed() const { return panel_stride != 0; }
  const float* at(std::int64_t col) const {
    return packed() ? data + col / kTileCols * panel_stride + col % kTileCols : data + col;
  }
};

/// The epilogue of the block of depths that begins at k.
inline Epilogue part_of(const Epilogue& whole, std::int64_t k, std::int64_t end, std::int64_t depth) {
  Epilogue part;
  if (end == depth) {
    part = whole;
  }
  part.add = k > 0 || whole.add;
  return part;
}

/// All tiles of one block. The left side is packed to `left_memory` unless that is null.
void multiply_block(const Left& left, std::int64_t rows, std::int64_t depth, float* left_memory, const Panels& right,
                    std::int64_t cols, const Output& out);

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
