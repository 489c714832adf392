#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tandem/core/float16.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/norm_formulas.h>

// The sums that layer norm and batch norm are made of. Blocks of 512 are summed in the type's arithmetic, and their
// sums in f64. Memory is read in order. Inlined by force: see per_isa.h.

namespace tandem::inline v0::kernels::cpu {

using Moments = kernels::Moments<>;
using kernels::Normaliser;

inline constexpr int kSumLanes = 32;                  // independent sums inside a block; fewer do not vectorise
inline constexpr std::int64_t kSumBlock = 512;        // elements summed before their sum joins the others in f64
inline constexpr std::int64_t kSumRows = 64;          // rows summed before the sums of their columns join the others
inline constexpr std::int64_t kTileColumns = 512;     // few enough for their sums to stay in L1
inline constexpr std::int64_t kTileElements = 65536;  // some 20 us of work
inline constexpr std::int64_t kTileRow = 4096;        // elements that are read in one go
inline constexpr std::int64_t kTilesPerThread = 4;    // so that all threads end at about the same time

// Bytes of a register. Compilers keep an array of sums in memory, where each addition waits for the store of the one
// before.
#if defined(__AVX512F__)
constexpr std::size_t kSumRegister = 64;
#elif defined(__AVX__)
constexpr std::size_t kSumRegister = 32;
#else
constexpr std::size_t kSumRegister = 16;
#endif
template <class C, std::size_t kBytes = kSumRegister>
struct SumRegister {
  typedef C Type __attribute__((vector_size(kBytes)));  // `using` does not take the attribute here
};

/// Length of a row of 16 bits from which a call that converts it takes less time than a loop on the spot. Loops over
/// f16 are slow: they don't know the processor's instructions.
template <class T>
inline constexpr std::int64_t kShortRow = std::is_same_v<T, Float16> ? 8 : 256;

/// A dense row where it lies, read in the type's arithmetic.
template <class T>
class PlainRow {
 public:
  [[gnu::always_inline]] PlainRow(const T* values, std::int64_t /*count*/) : values_(values) {}
  [[gnu::always_inline]] const T* data() const noexcept { return values_; }
  [[gnu::always_inline]] ComputeType<T> operator[](std::int64_t i) const noexcept { return values_[i]; }

 private:
  const T* values_;
};

/// A widened copy of up to kSumBlock elements.
template <class T>
class WidenedRow {
 public:
  [[gnu::always_inline]] WidenedRow(const T* values, std::int64_t count) {
    if (count < kShortRow<T>) {
      for (std::int64_t i = 0; i < count; ++i) {
        widened_[i] = values[i];
      }
    } else {
      widen(widened_, values, count);
    }
  }
  [[gnu::always_inline]] const float* data() const noexcept { return widened_; }
  [[gnu::always_inline]] float operator[](std::int64_t i) const noexcept { return widened_[i]; }

 private:
  float widened_[kSumBlock];
};

/// Up to kSumBlock elements of a row.
template <class T>
using RowPiece = std::conditional_t<is_16_bit<T>, WidenedRow<T>, PlainRow<T>>;
/// A row of columns. A loop over columns widens bf16 on the way.
template <class T>
using ColumnRow = std::conditional_t<std::is_same_v<T, Float16>, WidenedRow<T>, PlainRow<T>>;
static_assert(kTileColumns <= kSumBlock);

/// The sum of a register, by halves.
template <class C, class Register>
[[gnu::always_inline]] inline C sum_of_lanes(const Register& sums) {
  if constexpr (sizeof sums == sizeof(C)) {
    return sums[0];
  } else {
    typedef C Half __attribute__((vector_size(sizeof sums / 2)));
    Half halves[2];
    __builtin_memcpy(halves, &sums, sizeof sums);
    return sum_of_lanes<C>(halves[0] + halves[1]);
  }
}

/// Adds to `totals` the sums over [0, count) of terms(values[i]...), for at most kSumBlock elements. Element i is in
/// sum i % kSumLanes. The sums of long blocks stay in registers, where there are enough of them.
template <class C, std::size_t N, class Terms, class... Values>
[[gnu::always_inline]] inline void add_block(std::int64_t count, std::array<double, N>& totals, Terms&& terms,
                                             const Values*... values) {
  using Register = typename SumRegister<C>::Type;
  constexpr std::int64_t kWidth = kSumRegister / sizeof(C);
  constexpr std::int64_t kRegisters = kSumLanes / kWidth;
  C lanes[N][kSumLanes];
  std::int64_t i = 0;
  if constexpr (N * kRegisters <= 8) {
    if (count >= kSumLanes) {
      Register sums[N][kRegisters] = {};
      const auto load = [](const C* from) __attribute__((always_inline)) {
        Register read;
        __builtin_memcpy(&read, from, sizeof read);
        return read;
      };
      for (; i + kSumLanes <= count; i += kSumLanes) {
#pragma GCC unroll 8
        for (std::int64_t r = 0; r < kRegisters; ++r) {
          const auto term = terms(load(values + i + r * kWidth)...);
#pragma GCC unroll 2
          for (std::size_t k = 0; k < N; ++k) {
            sums[k][r] += term[k];
          }
        }
      }
      if (i == count) {
        for (std::size_t k = 0; k < N; ++k) {
#pragma GCC unroll 8
          for (std::int64_t half = kRegisters / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
            for (std::int64_t r = 0; r < half; ++r) {
              sums[k][r] += sums[k][r + half];
            }
          }
          totals[k] += static_cast<double>(sum_of_lanes<C>(sums[k][0]));
        }
        return;
      }
      __builtin_memcpy(lanes, sums, sizeof lanes);
    }
  }
  if (i == 0) {
    __builtin_memset(lanes, 0, sizeof lanes);
  }
  for (; i < count; i += kSumLanes) {
    const auto add = [&](std::int64_t width) {
      for (std::int64_t lane = 0; lane < width; ++lane) {
        const auto term = terms(values[i + lane]...);
        for (std::size_t k = 0; k < N; ++k) {
          lanes[k][lane] += term[k];
        }
      }
    };
    i + kSumLanes <= count ? add(kSumLanes) : add(count - i);
  }
  for (std::size_t k = 0; k < N; ++k) {
    for (int half = kSumLanes / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) {
        lanes[k][lane] += lanes[k][lane + half];
      }
    }
    totals[k] += static_cast<double>(lanes[k][0]);
  }
}

/// Sums over [0, count) of terms(values[i]...), which gives an array of N numbers of type C, or of registers for
/// registers.
template <class C, std::size_t N, class Terms, class... T>
[[gnu::always_inline]] inline std::array<double, N> sums_of(std::int64_t count, Terms&& terms, const T*... values) {
  std::array<double, N> totals{};
  for (std::int64_t begin = 0; begin < count; begin += kSumBlock) {
    const std::int64_t length = std::min(kSumBlock, count - begin);
    add_block<C>(length, totals, terms, RowPiece<T>(values + begin, length).data()...);
  }
  return totals;
}

/// Adds terms(row)(column), an array of N numbers, to the sums of the columns, for each row in [begin, end). Rows are
/// added one after the other, but taken four at a time, because sums[...] are in memory.
template <class C, std::size_t N, class Terms>
[[gnu::always_inline]] inline void add_rows(std::int64_t begin, std::int64_t end, std::int64_t columns,
                                            C (&sums)[N][kTileColumns], Terms&& terms) {
  const auto add = [&](const auto&... of_columns) __attribute__((always_inline)) {
    for (std::int64_t c = 0; c < columns; ++c) {
      C sum[N];
      for (std::size_t k = 0; k < N; ++k) {
        sum[k] = sums[k][c];
      }
      const auto add_term = [&](const std::array<C, N>& term) __attribute__((always_inline)) {
        for (std::size_t k = 0; k < N; ++k) {
          sum[k] += term[k];
        }
      };
      (add_term(of_columns(c)), ...);
      for (std::size_t k = 0; k < N; ++k) {
        sums[k][c] = sum[k];
      }
    }
  };
  std::int64_t row = begin;
  for (; row + 4 <= end; row += 4) {
    add(terms(row), terms(row + 1), terms(row + 2), terms(row + 3));
  }
  for (; row < end; ++row) {
    add(terms(row));
  }
}

/// Like sums_of(), for each of up to kTileColumns columns, over rows: terms(row)(column) is an array of N numbers.
template <class C, std::size_t N, class Terms>
[[gnu::always_inline]] inline void column_sums(std::int64_t rows, std::int64_t columns,
                                               double (&totals)[N][kTileColumns], Terms&& terms) {
  for (std::int64_t block = 0; block < rows; block += kSumRows) {
    C sums[N][kTileColumns] = {};
    add_rows(block, std::min(block + kSumRows, rows), columns, sums, terms);
    for (std::size_t k = 0; k < N; ++k) {
      for (std::int64_t c = 0; c < columns; ++c) {
        totals[k][c] += static_cast<double>(sums[k][c]);
      }
    }
  }
}

/// Moments of `size` dense values. Each block takes two passes; the first gives a mean that is off by rounding only.
/// Distances from the first value keep their digits around a large mean, and make the variance of equal values exactly
/// 0.
template <class T, class C = ComputeType<T>>
[[gnu::always_inline]] inline Moments moments_of(const T* values, std::int64_t size) {
  Moments all;
  for (std::int64_t begin = 0; begin < size; begin += kSumBlock) {
    const std::int64_t length = std::min(kSumBlock, size - begin);
    const RowPiece<T> piece(values + begin, length);
    const C* x = piece.data();
    const auto count = static_cast<double>(length);
    const C first = x[0];
    const auto [apart] = sums_of<C, 1>(length, [=](auto value) { return std::array{value - first}; }, x);
    const C near = first + static_cast<C>(apart / count);
    const auto [rest, squares] = sums_of<C, 2>(
        length,
        [=](auto value) {
          const auto distance = value - near;
          return std::array{distance, distance * distance};
        },
        x);
    all.add({count, static_cast<double>(near) + rest / count, std::max(squares - rest * rest / count, 0.0)});
  }
  return all;
}

/// Cuts a dense [outer, channels, inner] tensor into tiles of neighbouring channels and rows. A chunk works on one
/// tile. Partial sums are per tile, and are combined in the order of the rows.
struct Tiles {
  static constexpr std::int64_t at_least_1(std::int64_t count) noexcept { return std::max<std::int64_t>(count, 1); }

  std::int64_t outer, channels, inner;
  std::int64_t least = at_least_1(std::min(channels, kTileColumns / at_least_1(inner)));  // channels of a narrow tile
  std::int64_t height = at_least_1(kTileElements / at_least_1(least * inner));            // rows
  std::int64_t down = inner > 0 ? (outer + height - 1) / height : 0;
  // In channels. Long rows are read faster, but all threads need tiles. The sums do not depend on the width.
  std::int64_t width =
      narrow() ? least
               : std::max(least,
                          std::min(kTileRow / inner,
                                   (channels * down) / (kTilesPerThread * core::ThreadPool::instance().num_threads())));
  std::int64_t across = (channels + width - 1) / width;

  /// True if the rows of a tile are walked as columns; else each channel of a row is a dense row.
  bool narrow() const noexcept { return inner * 8 <= kTileColumns; }
};

struct NormTile {
  std::int64_t channel, channels;
  std::int64_t row, rows;
  std::int64_t part;  // index of the tile among those of the same channels, from the top
};

/// Calls body(tile) for each tile, in parallel.
template <class Body>
void for_each_tile(const Tiles& tiles, Body&& body) {
  const std::int64_t elements = tiles.width * tiles.inner * std::min(tiles.height, tiles.outer);
  const std::int64_t grain = 1 + kTileElements / (elements + kTileElements / 64);
  core::parallel_for(tiles.across * tiles.down, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t part = i / tiles.across;
      const std::int64_t channel = i % tiles.across * tiles.width;
      const std::int64_t row = part * tiles.height;
      body(NormTile{channel, std::min(tiles.width, tiles.channels - channel), row,
                    std::min(tiles.height, tiles.outer - row), part});
    }
  });
}

/// Stores a sum as the gradient at index `at`.
template <class T>
void store_gradient(void* out, std::int64_t at, double total, Accumulate accumulate) {
  using C = ComputeType<T>;
  T& target = static_cast<T*>(out)[at];
  target = T(accumulate == Accumulate::yes ? target + static_cast<C>(total) : static_cast<C>(total));
}

}  // namespace tandem::inline v0::kernels::cpu
