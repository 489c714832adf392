#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tandem/kernels/cpu/isa/gemm_pack.h>
#include <tandem/kernels/cpu/isa/gemm_update.h>

// The parts of a product that its callers put together: a block of it, from operands that lie packed or in place.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Columns of the right side and rows of the left one that are packed at a time.
inline constexpr std::int64_t kBlockCols = 32 * kTileCols;
inline constexpr std::int64_t kBlockRows = 12 * kTileRows;
template <class Units>
constexpr std::int64_t block_rows_of() {
  return Units::kStep > 1 ? 6 * kStepRows : kBlockRows;
}

/// Outputs of so many elements do not stay in the second-level cache: fetching a tile's lines while its depth runs is
/// worth 7 to 9 % then. It costs 1 to 10 % for outputs that are in a cache.
inline constexpr std::int64_t kFarOutputs = std::int64_t{1} << 19;
/// So many rows of tiles of such outputs are written side by side. Tiles of few rows read a panel of the right side
/// more often for each output, so that several of them have to share it. Both numbers were measured on a Xeon.
inline constexpr std::int64_t kFarTiles = kLanes == 16 ? 1 : 8;

/// How deep, in elements, each of the blocks is that a depth is cut into: whole steps of units.
template <class Units>
constexpr std::int64_t block_depth(std::int64_t depth) {
  const std::int64_t steps = up(depth, Units::kDepth * Units::kStep);
  return up(steps, up(steps, kDepth / Units::kStep)) * Units::kDepth * Units::kStep;
}

/// The left side of a product: element (row, k).
template <class T>
struct Left {
  const T* data;
  std::int64_t row_stride, depth_stride;  // one of them is 1
  bool row_major() const { return depth_stride == 1; }
  std::int64_t stride() const { return row_major() ? row_stride : depth_stride; }

  Left at(std::int64_t row, std::int64_t k) const {
    return {data + row * row_stride + k * depth_stride, row_stride, depth_stride};
  }
};

/// The right side of a product: element (k, col).
template <class T>
struct Right {
  const T* data;
  std::int64_t depth_stride, col_stride;

  Right at(std::int64_t k, std::int64_t col) const {
    return {data + k * depth_stride + col * col_stride, depth_stride, col_stride};
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

/// Floats that LeftTiles::packed() writes at most for so many rows, or that tiles read: tiles by depth are as deep as
/// kDepth and of equal height, so the last of them may stand over.
constexpr std::size_t left_size(std::int64_t rows) {
  static_assert(kStepRows >= kTallRows);
  return static_cast<std::size_t>((rows + kStepRows) * kLeftStride);
}

/// The outputs of a block.
template <class T>
struct Output {
  T* data;
  std::int64_t stride;
  EpilogueOf<T> epilogue;
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

/// The shape of a block's tiles. Rows of equal height in the fewest tiles: a tile of two rows would leave the
/// arithmetic units idle. A flat tile is wider than a packed panel. The matrix unit has one shape.
struct TileShape {
  std::int64_t rows, cols;

  template <class Units>
  static TileShape of(std::int64_t rows, std::int64_t cols, bool packed) {
    if (Units::kStep > 1) {
      return {kStepRows, kTileCols};
    }
    if (cols <= kLanes) {
      return {up(rows, up(rows, kTallRows)), kLanes};
    }
    if (rows <= 2 * kFlatRows && !packed) {
      return {up(rows, up(rows, kFlatRows)), kFlatCols};
    }
    return {up(rows, up(rows, kTileRows)), kTileCols};
  }
};

/// Where the tiles of a block have their left sides: `step` units from one to the next.
struct LeftTiles {
  const float* data;
  std::int64_t stride, step;
  LeftOrder order;

  static LeftTiles in_place(const Left<float>& left, std::int64_t height) {
    return {left.data, left.stride(), height * left.row_stride,
            left.row_major() ? LeftOrder::by_rows : LeftOrder::by_depth};
  }

  template <class Units, class T>
  static LeftTiles packed(const Left<T>& left, std::int64_t rows, std::int64_t depth, std::int64_t height,
                          float* memory) {
    if (left.row_major()) {
      pack_rows<Units>(left.data, left.row_stride, rows, depth, memory);
      return {memory, kLeftStride, height * kLeftStride, LeftOrder::packed_rows};
    }
    if constexpr (Units::kStep > 1) {
      pack_columns<Units>(left.data, left.depth_stride, rows, depth, memory);
      return {memory, kLeftStride, height * kLeftStride, LeftOrder::packed_rows};
    }
    const std::int64_t size = height * units_of<Units>(depth) + kLanes;
    pack_depths<Units>(left.data, left.depth_stride, rows, depth, memory, height, size);
    return {memory, height, size, LeftOrder::by_depth};
  }
};

/// Fetches what will be packed next, `rows` pieces of memory: each tile fetches its share of the cache lines into the
/// second-level cache, so that packing does not wait for memory.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  Ahead(const T* data, std::int64_t stride, std::int64_t rows, std::int64_t count, std::int64_t tiles)
      : row_(reinterpret_cast<const char*>(data)),
        stride_(stride * std::int64_t{sizeof(T)}),
        lines_(up(count * std::int64_t{sizeof(T)}, kLine)),
        left_(rows * lines_),
        share_(up(left_, tiles)) {}

  void fetch_share() {
    for (std::int64_t i = min(share_, left_); i > 0; --i, --left_) {
      __builtin_prefetch(row_ + line_ * kLine, 0, 2);
      if (++line_ == lines_) {
        line_ = 0;
        row_ += stride_;
      }
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;

  const char* row_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t lines_ = 0;  // of a row
  std::int64_t left_ = 0;
  std::int64_t share_ = 0;
  std::int64_t line_ = 0;
};

/// All tiles of one block, `depth` units deep.
template <class Units>
void multiply_tiles(LeftTiles left, const TileShape& shape, std::int64_t rows, std::int64_t depth, const Panels& right,
                    std::int64_t cols, const Output<float>& out, Ahead ahead) {
  // Tiles go down a panel of the right side, which then stays close. Outputs in memory are written a few rows of tiles
  // at a time, because neighbours share pages and the processor fetches ahead along a line. An update takes one row
  // of tiles, because `out` holds no more.
  const bool updates = out.update.update != nullptr;
  const bool fetches = updates && out.update.update->long_rows;
  const std::int64_t height = shape.rows;
  const std::int64_t tiles = updates ? 1 : out.is_far ? kFarTiles : up(rows, height);
  const std::int64_t strip = tiles * height;
  for (std::int64_t top = 0; top < rows; top += strip, left.data += tiles * left.step) {
    const std::int64_t bottom = min(top + strip, rows);
    for (std::int64_t col = 0; col < cols; col += shape.cols) {
      const float* left_tile = left.data;
      const std::int64_t wide = min(shape.cols, cols - col);
      for (std::int64_t row = top; row < bottom; row += height, left_tile += left.step) {
        const std::int64_t high = min(height, bottom - row);
        if (fetches) {
          fetch_tile(out.update.at(row, col), high, wide);
        }
        ahead.fetch_share();
        // One epilogue for all tiles: a copy of it for each would be read back before its parts have left the store
        // buffer, where they stand behind all outputs of the tile before (12 % of a step).
        tile_function<Units>(high, wide, left.order)({.row = row,
                                                      .col = col,
                                                      .depth = depth,
                                                      .left = left_tile,
                                                      .left_stride = left.stride,
                                                      .right = right.at(col),
                                                      .right_stride = right.stride,
                                                      .cols = wide,
                                                      .out = out.data + (updates ? row - top : row) * out.stride + col,
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

// The functions of all tiles take some seconds to compile: in gemm.cpp, once.
extern template void multiply_tiles<FloatUnits>(LeftTiles, const TileShape&, std::int64_t, std::int64_t, const Panels&,
                                                std::int64_t, const Output<float>&, Ahead);

/// All tiles of one block of a left side of elements. It is packed to `left_memory`; floats may also be read in place,
/// if that is null.
template <class Units, class T>
void multiply_block(const Left<T>& left, std::int64_t rows, std::int64_t depth, float* left_memory, const Panels& right,
                    std::int64_t cols, const Output<float>& out, const Ahead& ahead = {}) {
  const TileShape shape = TileShape::of<Units>(rows, cols, right.packed());
  LeftTiles tiles{};
  if constexpr (std::is_same_v<T, float>) {
    tiles = left_memory == nullptr ? LeftTiles::in_place(left, shape.rows)
                                   : LeftTiles::packed<Units>(left, rows, depth, shape.rows, left_memory);
  } else {
    tiles = LeftTiles::packed<Units>(left, rows, depth, shape.rows, left_memory);
  }
  multiply_tiles<Units>(tiles, shape, rows, units_of<Units>(depth), right, cols, out, ahead);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
