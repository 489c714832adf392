#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cpu/isa/gemm_block.h>

// Products of few rows whose right side comes from memory, or of little depth whose outputs go there. They go along
// lines, which the processor fetches ahead. A tile would take a vector of each line, and lines may lie pages apart.
// Sums are the same chains as those of tiles.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Up to so many rows, or such a depth, go along lines.
inline constexpr std::int64_t kFewLines = 3;

// Some lines of the right side, for a few rows of outputs.
struct RightLines {
  const float* factors;  // of row r and line i at r * row_stride + i * depth_stride
  std::int64_t row_stride, depth_stride;
  const float* lines;
  std::int64_t stride;
  std::int64_t cols;
  float* sums;  // those of row r at r * sums_stride
  std::int64_t sums_stride;
  bool adds;  // to the sums, which else begin with 0
};

template <int kRows, int kLines>
void add_lines(const RightLines& lines) {
  const RightLines of = lines;  // a copy that the stores below can't alias
  Vec factors[kRows][kLines];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) {
      factors[r][i] = broadcast(of.factors[r * of.row_stride + i * of.depth_stride]);
    }
  }
  const auto add = [&](std::int64_t col, auto... lanes) __attribute__((always_inline)) {
    Vec line[kLines];
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) {
      line[i] = load(of.lines + i * of.stride + col, lanes...);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float* const to = of.sums + r * of.sums_stride + col;
      Vec sum = of.adds ? load(to, lanes...) : broadcast(0);
#pragma GCC unroll 4
      for (int i = 0; i < kLines; ++i) {
        sum = fma(factors[r][i], line[i], sum);
      }
      store(to, sum, lanes...);
    }
  };
  std::int64_t col = 0;
  for (; col + kLanes <= of.cols; col += kLanes) {
    add(col);
  }
  if (col < of.cols) {
    add(col, first(of.cols - col));
  }
}

template <int kLines>
void add_lines(const RightLines& of, std::int64_t rows) {
  rows == 1 ? add_lines<1, kLines>(of) : rows == 2 ? add_lines<2, kLines>(of) : add_lines<3, kLines>(of);
}

/// For a right side whose columns are neighbours.
inline void multiply_lines(const Left<float>& left, const Right<float>& right, std::int64_t rows, std::int64_t cols,
                           std::int64_t depth, const Output<float>& out, ScratchArena& scratch) {
  constexpr std::int64_t kWide = 2048;  // columns whose sums stay in the first-level cache
  constexpr std::int64_t kStride = kWide + kLanes;
  constexpr std::int64_t kTogether = 4;
  const std::int64_t deep = block_depth<FloatUnits>(depth);
  const ScratchScope scope(scratch);
  float* const sums = scratch.allocate_array<float>(static_cast<std::size_t>(kFewLines * kStride));
  for (std::int64_t row = 0; row < rows; row += kFewLines) {
    const std::int64_t high = min(kFewLines, rows - row);
    for (std::int64_t col = 0; col < cols; col += kWide) {
      const std::int64_t wide = min(kWide, cols - col);
      for (std::int64_t k = 0; k < depth; k += deep) {
        const std::int64_t end = min(k + deep, depth);
        const Epilogue epilogue = part_of(out.epilogue, k, end, depth);
        const bool in_place = epilogue.plain() && !epilogue.add;  // the outputs themselves take the sums
        float* const to = out.data + row * out.stride + col;
        for (std::int64_t at = k; at < end; at += kTogether) {
          const Left<float> factors = left.at(row, at);
          const RightLines lines{factors.data,
                                 factors.row_stride,
                                 factors.depth_stride,
                                 right.at(at, col).data,
                                 right.depth_stride,
                                 wide,
                                 in_place ? to : sums,
                                 in_place ? out.stride : kStride,
                                 at > k};
          switch (end - at) {
            case 1: add_lines<1>(lines, high); break;
            case 2: add_lines<2>(lines, high); break;
            case 3: add_lines<3>(lines, high); break;
            default: add_lines<kTogether>(lines, high);
          }
        }
        for (std::int64_t r = 0; r < high && !in_place; ++r) {
          for (std::int64_t c = 0; c < wide; c += kLanes) {
            finish(epilogue, row + r, col + c, load(sums + r * kStride + c), first(wide - c), to + r * out.stride + c);
          }
        }
      }
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
