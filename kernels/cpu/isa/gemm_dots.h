#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/isa/gemm_pack.h>

// Products with so few columns that a tile would be all but empty: each output is a dot product along the depth.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// The sums of the lanes of each of the registers, in one.
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

/// Lane i: the dot product of row i of `left`, rows `stride` apart, with `right`. kAll: rows is kLanes.
template <bool kAll>
TANDEM_SIMD Vec dots(const float* left, std::int64_t stride, std::int64_t rows, const float* right,
                     std::int64_t depth) {
  Vec sums[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    sums[r] = broadcast(0);
  }
  for (std::int64_t k = 0; k < depth; k += kLanes) {
    const Mask lanes = first(depth - k);
    const Vec b = load(right + k, lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
      if (kAll || r < rows) {
        sums[r] = fma(load(left + r * stride + k, lanes), b, sums[r]);
      }
    }
  }
  return sum_lanes(sums);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
