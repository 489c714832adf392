#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels::cpu {

/// Rows that are added in f32 before their sum joins the others in f64.
inline constexpr std::int64_t kRowBlock = 64;

/// out[c * out_stride] (+)= scale * the sum over rows of in[r * row_stride + c], for `columns` columns. A column is
/// added from the top down, so how the columns are cut changes no bit; the bits are the same for every instruction set.
struct ColumnSums {
  const float* in;
  std::int64_t rows, columns, row_stride;
  float* out;
  std::int64_t out_stride;
  double scale;
  Accumulate accumulate;
};

TANDEM_FOR_EACH_ISA(void sum_columns_f32(const ColumnSums& sums);)

}  // namespace tandem::inline v0::kernels::cpu
