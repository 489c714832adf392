#include <algorithm>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/gemm.h>

// 16-bit products on machines without fused multiply-adds: a tile at a time is widened for Eigen's product. Sums stay
// in f32 until the end, where they are rounded once.

namespace tandem::inline v0::kernels::cpu::baseline {

namespace {

// Rows [row, row + rows), columns [col, col + cols) of a 16-bit matrix, as dense f32.
template <class T>
Matrix widen(const Matrix& from, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* in = static_cast<const T*>(from.data) + (row + i) * from.row_stride + col * from.col_stride;
    for (std::int64_t j = 0; j < cols; ++j) {
      to[i * cols + j] = in[j * from.col_stride];
    }
  }
  return {to, cols, 1};
}

template <class T>
void multiply(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch) {
  constexpr std::int64_t kTile = 512;
  constexpr std::int64_t kDepth = 1024;
  const ScratchScope scope(scratch);
  float* a = scratch.allocate_array<float>(kTile * kDepth);
  float* b = scratch.allocate_array<float>(kDepth * kTile);
  float* sums = scratch.allocate_array<float>(kTile * kTile);
  for (std::int64_t row = block.row; row < block.row + block.rows; row += kTile) {
    for (std::int64_t col = block.col; col < block.col + block.cols; col += kTile) {
      const std::int64_t rows = std::min(kTile, block.row + block.rows - row);
      const std::int64_t cols = std::min(kTile, block.col + block.cols - col);
      std::int64_t depth = 0;
      do {
        const std::int64_t count = std::min(kDepth, kernel.k - depth);
        gemm_f32({.dtype = DType::f32,
                  .accumulate = depth > 0 ? Accumulate::yes : Accumulate::no,
                  .m = rows,
                  .n = cols,
                  .k = count,
                  .a = widen<T>(kernel.a, row, rows, depth, count, a),
                  .b = widen<T>(kernel.b, depth, count, col, cols, b),
                  .out = sums,
                  .out_stride = cols},
                 {0, rows, 0, cols}, scratch);
        depth += count;
      } while (depth < kernel.k);
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t begin = (row + i) * kernel.out_stride + col;
        for (std::int64_t j = 0; j < cols; ++j) {
          static_cast<T*>(kernel.out)[begin + j] = finish<T>(kernel, sums[i * cols + j], begin + j, col + j);
        }
      }
    }
  }
}

}  // namespace

void gemm_16_bit(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate*) {
  kernel.dtype == DType::bf16 ? multiply<BFloat16>(kernel, block, scratch) : multiply<Float16>(kernel, block, scratch);
}

}  // namespace tandem::inline v0::kernels::cpu::baseline
