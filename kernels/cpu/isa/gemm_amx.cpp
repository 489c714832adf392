#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/cpu/isa/gemm_product.h>

// Products of bf16, and of f32 rounded to bf16, by the processor's matrix unit (Intel AMX). A register holds 16 rows of
// 16 units, or of 16 sums; a tile of outputs is two by two of them. An instruction adds 32 products to each of 256
// sums.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Packed operands are those of pairs, 16 of which are multiplied at a time. Within such a step the processor adds up
// the even and the odd depths, then both to the sum. Factors and sums below 2^-126 are zeros to it.
struct AmxUnits : Bf16Units {
  static constexpr std::int64_t kStep = 16;
};

constexpr int kSide = 16;  // rows of a register; also sums in a row
static_assert(kStepRows == 2 * kSide && kTileCols == 2 * kSide);

struct alignas(64) RegisterSizes {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide, kSide, kSide};
};
// GCC 12 believes that _tile_loadconfig() reads 8 bytes only. It would leave out the other bytes of a local variable.
constexpr RegisterSizes kFullSize;

/// All registers are of full size while this exists.
class FullRegisters {
 public:
  FullRegisters() { _tile_loadconfig(&kFullSize); }
  ~FullRegisters() { _tile_release(); }
  FullRegisters(const FullRegisters&) = delete;
  FullRegisters& operator=(const FullRegisters&) = delete;
};

// Registers 0 to 3 are the sums, row by row; 4 and 5 the left side, 6 and 7 the right one.
template <bool kTall, bool kWide>
void multiply_registers(const Tile& tile, float* sums, std::int64_t stride) {
  const std::int64_t row_bytes = stride * std::int64_t{sizeof(float)};
  constexpr std::int64_t kLeftBytes = kLeftStride * std::int64_t{sizeof(float)};
  const std::int64_t right_bytes = tile.right_stride * std::int64_t{sizeof(float)};
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const float* left = tile.left;
  const float* right = tile.right;
  for (std::int64_t unit = 0; unit < tile.depth; unit += AmxUnits::kStep) {
    _tile_loadd(6, right, right_bytes);
    _tile_loadd(4, left, kLeftBytes);
    if constexpr (kWide) _tile_loadd(7, right + kSide, right_bytes);
    if constexpr (kTall) _tile_loadd(5, left + kSide * kLeftStride, kLeftBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kWide) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTall) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTall && kWide) _tile_dpbf16ps(3, 5, 7);
    left += AmxUnits::kStep;
    right += AmxUnits::kStep * tile.right_stride;
  }
  _tile_stored(0, sums, row_bytes);
  if constexpr (kWide) _tile_stored(1, sums + kSide, row_bytes);
  if constexpr (kTall) _tile_stored(2, sums + kSide * stride, row_bytes);
  if constexpr (kTall && kWide) _tile_stored(3, sums + kSide * stride + kSide, row_bytes);
}

template <int kRows>
void multiply_tile_of_rows(const Tile& tile, const Epilogue& epilogue) {
  constexpr bool kTall = kRows > kSide;
  const bool wide = tile.cols > kSide;
  const auto multiply = wide ? &multiply_registers<kTall, true> : &multiply_registers<kTall, false>;
  if (tile.is_out_far) {
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(tile.out + r * tile.out_stride, 1);
      __builtin_prefetch(tile.out + r * tile.out_stride + (wide ? kSide : 0), 1);
    }
  }
  if (kRows % kSide == 0 && tile.cols % kSide == 0 && epilogue.plain() && !epilogue.add) {
    return multiply(tile, tile.out, tile.out_stride);
  }
  alignas(64) float sums[kStepRows * kTileCols];
  multiply(tile, sums, kTileCols);
  finish_tile(tile, epilogue, kRows, sums, kTileCols);
}

}  // namespace

template <>
MultiplyTile tile_function<AmxUnits>(std::int64_t rows, std::int64_t, LeftOrder) {
  static constexpr auto kOfRows = []<int... row>(std::integer_sequence<int, row...>) {
    return std::array<MultiplyTile, sizeof...(row)>{&multiply_tile_of_rows<row + 1>...};
  }(std::make_integer_sequence<int, kStepRows>());
  return kOfRows[static_cast<std::size_t>(rows - 1)];
}

void gemm_amx(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate* update) {
  const FullRegisters registers;
  kernel.dtype == DType::bf16 ? multiply<AmxUnits, BFloat16>(kernel, block, scratch, nullptr)
                              : multiply<AmxUnits, float>(kernel, block, scratch, update);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
