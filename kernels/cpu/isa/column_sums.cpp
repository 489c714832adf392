#include <tandem/kernels/cpu/column_sums.h>
#include <tandem/kernels/cpu/isa/simd.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

constexpr int kWide = 8;  // registers of sums side by side: the latency of an addition is hidden, and lines are whole

// The first `count` columns of so many registers; only of one may some be missing.
template <int kRegisters>
void sum_registers(const ColumnSums& sums, std::int64_t first_column, std::int64_t count) {
  constexpr int kColumns = kRegisters * kLanes;
  const Mask mask = first(count);
  const auto at = [&](const float* row, int k) __attribute__((always_inline)) {
    return kRegisters == 1 ? load(row, mask) : load(row + k * kLanes);
  };
  double totals[kColumns] = {};
  const float* row = sums.in + first_column;
  for (std::int64_t done = 0; done < sums.rows;) {
    const std::int64_t end = done + kRowBlock < sums.rows ? done + kRowBlock : sums.rows;
    Vec block[kRegisters] = {};
    for (; done < end; ++done, row += sums.row_stride) {
#pragma GCC unroll 8
      for (int k = 0; k < kRegisters; ++k) {
        block[k] = block[k] + at(row, k);
      }
    }
    float stored[kColumns];
#pragma GCC unroll 8
    for (int k = 0; k < kRegisters; ++k) {
      store(stored + k * kLanes, block[k]);
    }
    for (int c = 0; c < kColumns; ++c) {
      totals[c] += static_cast<double>(stored[c]);
    }
  }
  const auto write = [&](std::int64_t stride) __attribute__((always_inline)) {
    float* out = sums.out + first_column * stride;
    for (std::int64_t c = 0; c < count; ++c) {
      const auto value = static_cast<float>(totals[c] * sums.scale);
      out[c * stride] = sums.accumulate == Accumulate::yes ? out[c * stride] + value : value;
    }
  };
  sums.out_stride == 1 ? write(1) : write(sums.out_stride);
}

// Elements from which on the rows come from memory, not from a cache, and the number of columns summed at a time then.
constexpr std::int64_t kInMemory = 262144;
constexpr std::int64_t kLong = 1024;

// Reads four rows side by side, in long stretches, as memory likes it; the sums lie in the first-level cache.
void sum_long_rows(const ColumnSums& sums, std::int64_t first_column, std::int64_t count) {
  double totals[kLong] = {};
  const float* row = sums.in + first_column;
  const std::int64_t stride = sums.row_stride;
  for (std::int64_t done = 0; done < sums.rows;) {
    const std::int64_t end = done + kRowBlock < sums.rows ? done + kRowBlock : sums.rows;
    float block[kLong] = {};
    for (; done + 4 <= end; done += 4, row += 4 * stride) {
      for (std::int64_t c = 0; c < count; ++c) {
        block[c] = (((block[c] + row[c]) + row[stride + c]) + row[2 * stride + c]) + row[3 * stride + c];
      }
    }
    for (; done < end; ++done, row += stride) {
      for (std::int64_t c = 0; c < count; ++c) {
        block[c] = block[c] + row[c];
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      totals[c] += static_cast<double>(block[c]);
    }
  }
  float* out = sums.out + first_column * sums.out_stride;
  for (std::int64_t c = 0; c < count; ++c) {
    const auto value = static_cast<float>(totals[c] * sums.scale);
    float& to = out[c * sums.out_stride];
    to = sums.accumulate == Accumulate::yes ? to + value : value;
  }
}

}  // namespace

void sum_columns_f32(const ColumnSums& sums) {
  std::int64_t column = 0;
  if (sums.rows * sums.columns >= kInMemory && sums.columns >= kLong / 4) {
    for (; column < sums.columns; column += kLong) {
      sum_long_rows(sums, column, sums.columns - column < kLong ? sums.columns - column : kLong);
    }
    return;
  }
  for (; column + kWide * kLanes <= sums.columns; column += kWide * kLanes) {
    sum_registers<kWide>(sums, column, kWide * kLanes);
  }
  for (; column < sums.columns; column += kLanes) {
    sum_registers<1>(sums, column, sums.columns - column < kLanes ? sums.columns - column : kLanes);
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
