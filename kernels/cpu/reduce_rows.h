#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>

// Reductions of dense f32, on one thread; the caller divides the work.

namespace tandem::inline v0::kernels::cpu {

/// The largest or smallest of some elements, and the position of the first one that is it. A NaN wins.
struct Extreme {
  float value;
  std::int64_t at;
};

/// The extremes of `columns` columns, over rows.
struct ColumnExtremes {
  const float* in;
  std::int64_t rows, columns, row_stride;
  float* out;
  std::int64_t* indices;  // or null
};

// sum_row sums blocks of 512 in eight lanes, with the same bits as the sums of the other types of reduce.cpp. Without
// needs_position, `at` may be anything. A row that extreme_of_row sees is not empty, and extremes_of_columns has fewer
// than 2^31 rows.
TANDEM_FOR_EACH_ISA(double sum_row(const float* in, std::int64_t count);
                    Extreme extreme_of_row(const float* in, std::int64_t count, bool largest, bool needs_position);
                    void extremes_of_columns(const ColumnExtremes& columns, bool largest);)

}  // namespace tandem::inline v0::kernels::cpu
