#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/isa/gemm_block.h>

// Products with so few rows or columns that a tile would be all but empty: each output is a dot product along the
// depth.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

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

// dots() for kLanes rows, or for fewer.
template <bool kAll, class T>
TANDEM_SIMD Vec dots_of(const T* left, std::int64_t stride, std::int64_t rows, const T* right, std::int64_t depth) {
  Vec sums[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    sums[r] = broadcast(0);
  }
  const auto add = [&](std::int64_t k, auto... lanes) {
    const Vec b = load_as_floats(right + k, lanes...);
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
      if (kAll || r < rows) {
        sums[r] = fma(load_as_floats(left + r * stride + k, lanes...), b, sums[r]);
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

// Lane i is the dot product of row i of `left`, whose rows are `stride` apart, with `right`.
template <class T>
TANDEM_SIMD Vec dots(const T* left, std::int64_t stride, std::int64_t rows, const T* right, std::int64_t depth) {
  return rows == kLanes ? dots_of<true>(left, stride, rows, right, depth)
                        : dots_of<false>(left, stride, rows, right, depth);
}

/// For so few rows or columns the outputs are dot products.
inline constexpr std::int64_t kFew = 3;

/// For few rows and many columns, both sides dense along the depth: a layer's forward pass of a few samples. The
/// weights are read once for each row.
template <class T>
void multiply_rows(const Left<T>& left, const Right<T>& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                   const Output<T>& out) {
  for (std::int64_t col = 0; col < cols; col += kLanes) {
    const std::int64_t here = min(kLanes, cols - col);
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* a = left.at(row, 0).data;
      const T* b = right.at(0, col).data;
      const Vec sums = dots(b, right.col_stride, here, a, depth);
      finish(out.epilogue, row, col, sums, first(here), out.data + row * out.stride + col);
    }
  }
}

// finish() for outputs of one column that lie side by side.
template <class T>
TANDEM_SIMD void finish_column(const EpilogueOf<T>& epilogue, std::int64_t row, Vec sum, Mask lanes, T* out) {
  if (epilogue.add) {
    sum += load_as_floats(out, lanes);
  }
  if (epilogue.bias != nullptr) {
    sum += broadcast(load_as_floats(epilogue.bias, first(1))[0]);
  }
  if (epilogue.relu) {
    sum = max(broadcast(0), sum);
  }
  if (epilogue.mask != nullptr) {
    sum = unless_off(load_as_floats(epilogue.mask + row, lanes), sum);
  }
  store_rounded(out, sum, lanes);
}

/// For few columns, both sides dense along the depth.
template <class T>
void multiply_dots(const Left<T>& left, const Right<T>& right, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                   const Output<T>& out) {
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    const std::int64_t here = min(kLanes, rows - row);
    for (std::int64_t col = 0; col < cols; ++col) {
      alignas(64) float sums[kLanes];
      const T* a = left.at(row, 0).data;
      const T* b = right.at(0, col).data;
      const Vec all = dots(a, left.row_stride, here, b, depth);
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

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
