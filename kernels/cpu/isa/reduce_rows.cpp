#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/cpu/reduce_rows.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

constexpr std::int64_t kBlock = 512;
constexpr int kSums = 8;
using Sums = float __attribute__((vector_size(kSums * sizeof(float))));

// The lanes of one block are added while those of the next one are, because a chain of additions alone would wait.
template <int kBlocks>
TANDEM_SIMD double sum_blocks(const float* in, double total) {
  Sums sums[kBlocks] = {};
  for (std::int64_t i = 0; i < kBlock; i += kSums) {
#pragma GCC unroll 4
    for (int k = 0; k < kBlocks; ++k) {
      Sums values;
      __builtin_memcpy(&values, in + k * kBlock + i, sizeof values);
      sums[k] = sums[k] + values;
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < kBlocks; ++k) {
#pragma GCC unroll 8
    for (int lane = 0; lane < kSums; ++lane) {
      total += static_cast<double>(sums[k][lane]);
    }
  }
  return total;
}

// `a` goes before `b`. False where one is NaN.
template <bool kLargest>
TANDEM_SIMD bool beats(float a, float b) {
  return kLargest ? a > b : a < b;
}

// Finds the block with the first extreme value, then its position.
template <bool kLargest>
Extreme extreme(const float* in, std::int64_t count, bool needs_position) {
  constexpr int kSide = 8;  // registers side by side hide the latency of a comparison
  constexpr std::int64_t kStep = kSide * kLanes;
  constexpr std::int64_t kPart = 16 * kStep;
  const float none = kLargest ? -__builtin_inff() : __builtin_inff();
  float best = none;
  std::int64_t block = 0;
  for (std::int64_t begin = 0; begin < count; begin += kPart) {
    const std::int64_t end = begin + kPart < count ? begin + kPart : count;
    Vec side[kSide];
    Bits nan{};
#pragma GCC unroll 8
    for (int k = 0; k < kSide; ++k) {
      side[k] = broadcast(none);
    }
    std::int64_t i = begin;
    for (; i + kStep <= end; i += kStep) {
#pragma GCC unroll 8
      for (int k = 0; k < kSide; ++k) {
        const Vec x = load(in + i + k * kLanes);
        nan = nan | reinterpret_cast<Bits>(x != x);
        side[k] = kLargest ? max(x, side[k]) : min(x, side[k]);
      }
    }
    for (; i + kLanes <= end; i += kLanes) {
      const Vec x = load(in + i);
      nan = nan | reinterpret_cast<Bits>(x != x);
      side[0] = kLargest ? max(x, side[0]) : min(x, side[0]);
    }
#pragma GCC unroll 8
    for (int k = 1; k < kSide; ++k) {
      side[0] = kLargest ? max(side[k], side[0]) : min(side[k], side[0]);
    }
    float of_block = none;
    std::int32_t nans = 0;
#pragma GCC unroll 16
    for (int lane = 0; lane < kLanes; ++lane) {
      of_block = beats<kLargest>(side[0][lane], of_block) ? side[0][lane] : of_block;
      nans |= nan[lane];
    }
    bool has_nan = nans != 0;
    for (; i < end; ++i) {
      has_nan = has_nan || in[i] != in[i];
      of_block = beats<kLargest>(in[i], of_block) ? in[i] : of_block;
    }
    if (has_nan) {
      std::int64_t at = begin;
      while (in[at] == in[at]) {
        ++at;
      }
      return {in[at], at};
    }
    if (beats<kLargest>(of_block, best)) {
      best = of_block;
      block = begin;
    }
  }
  if (!needs_position && best != 0) {  // zeros of both signs are equal
    return {best, 0};
  }
  constexpr std::int64_t kSearch = 32;
  for (; block + kSearch <= count; block += kSearch) {
    int here = 0;
    for (std::int64_t i = 0; i < kSearch; ++i) {
      here |= static_cast<int>(in[block + i] == best);
    }
    if (here != 0) {
      break;
    }
  }
  while (in[block] != best) {
    ++block;
  }
  return {in[block], block};
}

template <bool kLargest>
void column_extremes(const ColumnExtremes& of) {
  constexpr std::int64_t kColumns = 1024;  // long stretches of memory
  for (std::int64_t first = 0; first < of.columns; first += kColumns) {
    const std::int64_t width = of.columns - first < kColumns ? of.columns - first : kColumns;
    float best[kColumns];
    std::int32_t at[kColumns] = {};
    __builtin_memcpy(best, of.in + first, static_cast<std::size_t>(width) * sizeof(float));
    const auto take_row = [&](const float* row, std::int32_t r) __attribute__((always_inline)) {
      for (std::int64_t c = 0; c < width; ++c) {
        const float value = row[c];
        const float old = best[c];
        // The negated comparison lets a NaN win. Once it has won, nothing beats it.
        const bool wins = !(kLargest ? value <= old : value >= old) & (old == old);
        best[c] = wins ? value : old;
        at[c] = wins ? r : at[c];
      }
    };
    for (std::int64_t r = 1; r < of.rows; ++r) {
      take_row(of.in + r * of.row_stride + first, static_cast<std::int32_t>(r));
    }
    __builtin_memcpy(of.out + first, best, static_cast<std::size_t>(width) * sizeof(float));
    for (std::int64_t c = 0; of.indices != nullptr && c < width; ++c) {
      of.indices[first + c] = at[c];
    }
  }
}

}  // namespace

double sum_row(const float* in, std::int64_t count) {
  double total = 0;
  std::int64_t i = 0;
  for (; i + 4 * kBlock <= count; i += 4 * kBlock) {
    total = sum_blocks<4>(in + i, total);
  }
  for (; i + kBlock <= count; i += kBlock) {
    total = sum_blocks<1>(in + i, total);
  }
  if (i < count) {
    Sums sums{};
    for (; i + kSums <= count; i += kSums) {
      Sums values;
      __builtin_memcpy(&values, in + i, sizeof values);
      sums = sums + values;
    }
    for (int lane = 0; i < count; ++i, ++lane) {
      sums[lane] += in[i];
    }
    for (int lane = 0; lane < kSums; ++lane) {
      total += static_cast<double>(sums[lane]);
    }
  }
  return total;
}

Extreme extreme_of_row(const float* in, std::int64_t count, bool largest, bool needs_position) {
  return largest ? extreme<true>(in, count, needs_position) : extreme<false>(in, count, needs_position);
}

void extremes_of_columns(const ColumnExtremes& columns, bool largest) {
  largest ? column_extremes<true>(columns) : column_extremes<false>(columns);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
