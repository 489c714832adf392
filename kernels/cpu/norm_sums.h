#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <tandem/core/float16.h>
#include <tandem/core/thread_pool.h>
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

/// Sums of terms(i), an array of N numbers, over [0, count).
template <class C, std::size_t N, class Terms>
[[gnu::always_inline]] inline std::array<double, N> sums_of(std::int64_t count, Terms&& terms) {
  std::array<double, N> totals{};
  for (std::int64_t begin = 0; begin < count; begin += kSumBlock) {
    const std::int64_t end = std::min(begin + kSumBlock, count);
    C lanes[N][kSumLanes] = {};
    for (std::int64_t i = begin; i < end; i += kSumLanes) {
      const auto add = [&](std::int64_t width) {
        for (std::int64_t lane = 0; lane < width; ++lane) {
          const std::array<C, N> term = terms(i + lane);
          for (std::size_t k = 0; k < N; ++k) {
            lanes[k][lane] += term[k];
          }
        }
      };
      i + kSumLanes <= end ? add(kSumLanes) : add(end - i);
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
  return totals;
}

/// Like sums_of(), for each of up to kTileColumns columns, over rows: terms(row)(column) is an array of N numbers.
template <class C, std::size_t N, class Terms>
[[gnu::always_inline]] inline void column_sums(std::int64_t rows, std::int64_t columns,
                                               double (&totals)[N][kTileColumns], Terms&& terms) {
  for (std::int64_t block = 0; block < rows; block += kSumRows) {
    C sums[N][kTileColumns] = {};
    for (std::int64_t row = block; row < std::min(block + kSumRows, rows); ++row) {
      const auto of_column = terms(row);
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::array<C, N> term = of_column(c);
        for (std::size_t k = 0; k < N; ++k) {
          sums[k][c] += term[k];
        }
      }
    }
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
    const T* x = values + begin;
    const std::int64_t length = std::min(kSumBlock, size - begin);
    const auto count = static_cast<double>(length);
    const C first = x[0];
    const auto [apart] = sums_of<C, 1>(length, [=](std::int64_t i) { return std::array<C, 1>{x[i] - first}; });
    const C near = first + static_cast<C>(apart / count);
    const auto [rest, squares] = sums_of<C, 2>(length, [=](std::int64_t i) {
      const C distance = x[i] - near;
      return std::array<C, 2>{distance, distance * distance};
    });
    all.add({count, static_cast<double>(near) + rest / count, std::max(squares - rest * rest / count, 0.0)});
  }
  return all;
}

/// Cuts a dense [outer, channels, inner] tensor into tiles of neighbouring channels and rows. A chunk works on one
/// tile. Partial sums are per tile, and are combined in the order of the rows.
struct Tiles {
  static constexpr std::int64_t at_least_1(std::int64_t count) noexcept { return std::max<std::int64_t>(count, 1); }

  std::int64_t outer, channels, inner;
  std::int64_t width = at_least_1(std::min(channels, kTileColumns / at_least_1(inner)));  // channels
  std::int64_t height = at_least_1(kTileElements / at_least_1(width * inner));            // rows
  std::int64_t across = (channels + width - 1) / width;
  std::int64_t down = inner > 0 ? (outer + height - 1) / height : 0;

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
