#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include <tandem/kernels/cpu/isa/gemm_units.h>

// The innermost loop of a product: a tile of outputs stays in registers while the depth runs. Each output is one chain
// of fused multiply-adds per kDepth units of the depth, in its order, wherever the tiles' borders fall: so how the work
// is cut changes no bit of the result. (The matrix unit has an order of its own, which is the same for each output.)

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

// Registers: kTileRows * kTileVecs sums, kTileVecs of the right side, one of the left.
inline constexpr int kTileVecs = 2;
inline constexpr int kTileCols = kTileVecs * kLanes;
inline constexpr int kTileRows = kLanes == 16 ? 14 : 6;
/// Other shapes for so few columns, or so few rows, that the usual one would leave registers empty.
inline constexpr int kTallRows = kLanes == 16 ? 24 : 12;
inline constexpr int kFlatRows = kLanes == 16 ? 8 : 4;
inline constexpr int kFlatCols = 3 * kLanes;
/// Tiles that take several units at a time have up to so many rows, and no other kind has more.
inline constexpr int kStepRows = 32;
/// How many units deep a packed block is, and where the next row of a packed, row-major left side begins: known to the
/// compiler, rows need no pointers of their own; not a power of two, they don't share cache sets.
inline constexpr std::int64_t kDepth = 256;
inline constexpr std::int64_t kLeftStride = kDepth + 16;

/// The sums of a product of outputs of the type T are treated in this order: [+ old] [+ bias] [max 0] [0 if mask <= 0;
/// a NaN mask keeps the sum]. The pointers are those of the first row and column.
template <class T>
struct EpilogueOf {
  bool add = false;
  bool relu = false;
  const T* bias = nullptr;
  const T* mask = nullptr;
  std::int64_t mask_stride = 0;

  /// Nothing, or the sum with what was there.
  bool plain() const { return bias == nullptr && !relu && mask == nullptr; }

  EpilogueOf at(std::int64_t row, std::int64_t col) const {
    EpilogueOf moved = *this;
    moved.bias = bias == nullptr ? nullptr : bias + col;
    moved.mask = mask == nullptr ? nullptr : mask + row * mask_stride + col;
    return moved;
  }
};

using Epilogue = EpilogueOf<float>;

template <class T>
TANDEM_SIMD void finish(const EpilogueOf<T>& epilogue, std::int64_t row, std::int64_t col, Vec sum, Mask lanes,
                        T* out) {
  if (epilogue.add) {
    sum += load_as_floats(out, lanes);
  }
  if (epilogue.bias != nullptr) {
    sum += load_as_floats(epilogue.bias + col, lanes);
  }
  if (epilogue.relu) {
    sum = max(broadcast(0), sum);  // NaN stays
  }
  if (epilogue.mask != nullptr) {
    sum = unless_off(load_as_floats(epilogue.mask + row * epilogue.mask_stride + col, lanes), sum);
  }
  store_rounded(out, sum, lanes);
}

/// How the left side of a tile lies: unit (r, k).
enum class LeftOrder : unsigned char {
  by_depth,     // at k * stride + r
  by_rows,      // at r * stride + k
  packed_rows,  // at r * kLeftStride + k
};

struct Tile {
  std::int64_t row, col;  // where the epilogue counts from
  std::int64_t depth;     // in units, as the strides
  const float* left;
  std::int64_t left_stride;
  const float* right;  // (k, c) at k * right_stride + c
  std::int64_t right_stride;
  std::int64_t cols;
  float* out;
  std::int64_t out_stride;
  bool is_out_far;  // the outputs lie in memory rather than in a cache
};

/// A right side of two vectors in places of their own: lane i of line k is at vectors[v][offsets[k] + i]. Its sums
/// begin with starts[row], or with 0 if that is null.
struct ScatteredRight {
  const float* vectors[2];
  const std::int64_t* offsets;
  const float* starts;
};

// Element (r, 0) of a left side by rows. A pointer for each row would not fit in the registers; with three multiples of
// the stride, x86's address modes reach seven rows from one.
template <int r>
TANDEM_SIMD float in_row(const char* const (&from_rows)[4], std::int64_t s1, std::int64_t s3, std::int64_t s5) {
  const char* from = from_rows[r / 7];
  constexpr int kRow = r % 7;
  const std::int64_t offset = kRow == 0 ? 0 : kRow == 3 ? s3 : kRow == 6 ? 2 * s3 : kRow == 5 ? s5 : kRow * s1;
  return *reinterpret_cast<const float*>(from + offset);
}

// The sums of a tile, in rows of `stride`, to where they belong.
[[gnu::noinline]] inline void finish_tile(const Tile& tile, const Epilogue& epilogue, std::int64_t rows,
                                          const float* sums, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < tile.cols; c += kLanes) {
      finish(epilogue, tile.row + r, tile.col + c, load(sums + r * stride + c), first(tile.cols - c),
             tile.out + r * tile.out_stride + c);
    }
  }
}

// kScattered: the right side is `scattered`, else that of the tile.
template <class Units, int kRows, int kVecs, LeftOrder order, bool kScattered = false>
TANDEM_SIMD void multiply_tile_of(const Tile& tile, const Epilogue& epilogue, const ScatteredRight* scattered) {
  Vec sum[kRows][kVecs];
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = broadcast(kScattered && scattered->starts != nullptr ? scattered->starts[r] : 0);
    }
  }
  // The last vector ends with the last column. It shares columns with the one before rather than being masked: a masked
  // load takes a multiplier's place on Intel, 3 % of a tile. A vector on its own has no other columns to take.
  constexpr bool kOverlaps = kVecs > 1 && !kScattered;
  const std::int64_t last_column = kOverlaps ? tile.cols - kLanes : (kVecs - 1) * kLanes;
  const auto column_of = [=](int v) { return v + 1 < kVecs ? v * kLanes : last_column; };
  const Mask last = first(tile.cols);
  const float* left = tile.left;
  const float* right = tile.right;
  const std::int64_t left_step = order == LeftOrder::by_depth ? tile.left_stride : 1;
  const std::int64_t right_stride = tile.right_stride;
  const std::int64_t s1 = tile.left_stride * std::int64_t{sizeof(float)};
  const std::int64_t s3 = 3 * s1;
  const std::int64_t s5 = 5 * s1;
  const char* rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = reinterpret_cast<const char*>(left) + i * 7 * s1;
  }
  if (tile.is_out_far) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(tile.out + r * tile.out_stride, 1);
    }
  }
  const float* vectors[kVecs];
  const std::int64_t* offsets = nullptr;
  if constexpr (kScattered) {
    static_assert(kVecs == 2);
    vectors[0] = scattered->vectors[0];
    vectors[1] = scattered->vectors[1];
    offsets = scattered->offsets;
  }
  for (std::int64_t k = tile.depth; k > 0; --k) {
    Vec b[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (kScattered) {
        b[v] = load(vectors[v] + *offsets);
      } else {
        b[v] = kOverlaps ? load(right + column_of(v)) : load(right, last);
      }
    }
    if constexpr (kScattered) {
      ++offsets;
    }
    const auto row = [&]<int r>() {
      const float x = order == LeftOrder::by_depth      ? left[r]
                      : order == LeftOrder::packed_rows ? left[r * kLeftStride]
                                                        : in_row<r>(rows, s1, s3, s5);
      const Vec a = broadcast(x);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sum[r][v] = Units::add(a, b[v], sum[r][v]);
      }
    };
    [&]<int... r>(std::integer_sequence<int, r...>) {
      (row.template operator()<r>(), ...);
    }(std::make_integer_sequence<int, kRows>{});
    left += left_step;
#pragma GCC unroll 4
    for (const char*& row_pointer : rows) {
      row_pointer += sizeof(float);
    }
    right += right_stride;
  }
  constexpr std::int64_t kCols = kVecs * kLanes;
  alignas(64) float memory[kRows * kCols];
  const bool plain = epilogue.plain() && (kMasksAreCheap || kOverlaps || tile.cols == kCols);
  float* out = plain ? tile.out : memory;
  const std::int64_t out_stride = plain ? tile.out_stride : kCols;
  const bool add = plain && epilogue.add;
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r, out += out_stride) {
    // A scattered tile has two vectors even for the columns of one.
    const auto lanes = [&](int v) {
      return kMasksAreCheap && !kOverlaps ? first(tile.cols - v * kLanes) : first(kLanes);
    };
    if (add) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sum[r][v] += load(out + column_of(v), lanes(v));
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      store(out + column_of(v), sum[r][v], lanes(v));
    }
  }
  if (!plain) {
    finish_tile(tile, epilogue, kRows, memory, kCols);
  }
}

template <class Units, int kRows, int kVecs, LeftOrder order>
void multiply_tile(const Tile& tile, const Epilogue& epilogue) {
  multiply_tile_of<Units, kRows, kVecs, order>(tile, epilogue, nullptr);
}

using MultiplyTile = void (*)(const Tile&, const Epilogue&);

template <class Units, int kVecs, int... kRows>
constexpr auto tiles_of(std::integer_sequence<int, kRows...>) {
  using Functions = std::array<MultiplyTile, sizeof...(kRows)>;
  return std::array<Functions, 3>{Functions{&multiply_tile<Units, kRows + 1, kVecs, LeftOrder::by_depth>...},
                                  Functions{&multiply_tile<Units, kRows + 1, kVecs, LeftOrder::by_rows>...},
                                  Functions{&multiply_tile<Units, kRows + 1, kVecs, LeftOrder::packed_rows>...}};
}

/// The function for tiles of `rows` rows and `cols` columns: at most kTallRows and kLanes, kTileRows and kTileCols, or
/// kFlatRows and kFlatCols; of the matrix unit kStepRows and kTileCols.
template <class Units>
MultiplyTile tile_function(std::int64_t rows, std::int64_t cols, LeftOrder order) {
  static constexpr auto kTall = tiles_of<Units, 1>(std::make_integer_sequence<int, kTallRows>{});
  static constexpr auto kUsual = tiles_of<Units, 2>(std::make_integer_sequence<int, kTileRows>{});
  static constexpr auto kFlat = tiles_of<Units, 3>(std::make_integer_sequence<int, kFlatRows>{});
  const auto row = static_cast<std::size_t>(rows - 1);
  const auto by = static_cast<std::size_t>(order);
  return cols <= kLanes ? kTall[by][row] : cols <= kTileCols ? kUsual[by][row] : kFlat[by][row];
}

template <int kRows>
void multiply_scattered_tile(const Tile& tile, const Epilogue& epilogue, const ScatteredRight& right) {
  multiply_tile_of<FloatUnits, kRows, kTileVecs, LeftOrder::by_rows, true>(tile, epilogue, &right);
}

using MultiplyScatteredTile = void (*)(const Tile&, const Epilogue&, const ScatteredRight&);

/// The function for tiles of `rows` rows, at most kTileRows, and kTileCols columns, whose left side lies by rows.
inline MultiplyScatteredTile scattered_tile_function(std::int64_t rows) {
  static constexpr auto kOfRows = []<int... row>(std::integer_sequence<int, row...>) {
    return std::array<MultiplyScatteredTile, sizeof...(row)>{&multiply_scattered_tile<row + 1>...};
  }(std::make_integer_sequence<int, kTileRows>());
  return kOfRows[static_cast<std::size_t>(rows - 1)];
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
