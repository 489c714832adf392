#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/kernels/cpu/isa/gemm_tile.h>

// Copies of the operands in the order in which tiles read them.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Fetches the beginning of a line that will be packed soon: the processor fetches the rest when it sees a few
/// neighbours being read, but not beyond a page. There may be nothing at `line`. GCC would remove calls of a function
/// that only fetches; this one is inlined before it looks for them.
template <class Source>
TANDEM_SIMD void fetch_line(const Source* line) {
  constexpr int kNeighbours = 3;
  for (int i = 0; i < kNeighbours; ++i) {
    __builtin_prefetch(reinterpret_cast<const char*>(line) + i * 64);
  }
}

/// `lines` lines of `depth` elements, `stride` apart, to lines of units kLeftStride apart.
template <class Units, class Source>
void pack_rows(const Source* from, std::int64_t stride, std::int64_t lines, std::int64_t depth, float* to) {
  constexpr std::int64_t kStep = Units::kDepth * kLanes;
  const std::int64_t whole = depth / kStep * kStep;
  const std::int64_t rest = depth - whole;
  const Mask last = first(units_of<Units>(rest));
  constexpr std::int64_t kLongLine = 64;  // of shorter ones, as of an image, the neighbours are under way anyway
  for (std::int64_t line = 0; line < lines; ++line, from += stride, to += kLeftStride) {
    if (depth > kLongLine) {
      fetch_line(from + 2 * stride);
    }
    for (std::int64_t k = 0; k < whole; k += kStep) {
      store(to + k / Units::kDepth, Units::along(from + k));
    }
    if (rest > 0) {
      store(to + whole / Units::kDepth, Units::along(from + whole, rest), last);
    }
  }
}

/// `lines` neighbouring lines, of which each depth is `stride` elements behind the one before, to tiles of `height`
/// lines that begin `size` units apart: unit (line, k) of a tile to k * height + line. Up to kLanes units behind a
/// depth of a tile may be overwritten. All tiles are written side by side, so that each line of memory is read once.
template <class Units, class Source>
void pack_depths(const Source* from, std::int64_t stride, std::int64_t lines, std::int64_t depth, float* to,
                 std::int64_t height, std::int64_t size) {
  for (std::int64_t k = 0; k < depth; k += Units::kDepth, to += height, from += Units::kDepth * stride) {
    const bool second = k + 1 < depth;
    for (int i = 0; i < Units::kDepth; ++i) {
      fetch_line(from + (4 * Units::kDepth + i) * stride);
    }
    float* tile = to;
    for (std::int64_t top = 0; top < lines; top += height, tile += size) {
      const std::int64_t here = min(height, lines - top);
      for (std::int64_t line = 0; line < here; line += kLanes) {
        const Source* const p = from + top + line;
        // Whole registers as long as there are lines to read, because masked ones are slow with AVX2.
        if (top + line + kLanes <= lines) {
          store(tile + line, Units::across(p, stride, second));
        } else {
          const Mask last = first(lines - top - line);
          store(tile + line, Units::across(p, stride, second, last), last);
        }
      }
    }
  }
}

#if defined(__AVX512F__)

/// A square of kLanes x kLanes in registers becomes its transpose.
TANDEM_SIMD void transpose(Vec (&r)[16]) {
  Vec t[16];
  const auto pd = [](Vec v) { return _mm512_castps_pd(v); };
  const auto ps = [](__m512d v) { return _mm512_castpd_ps(v); };
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = ps(_mm512_unpacklo_pd(pd(t[i]), pd(t[i + 2])));
    r[i + 1] = ps(_mm512_unpackhi_pd(pd(t[i]), pd(t[i + 2])));
    r[i + 2] = ps(_mm512_unpacklo_pd(pd(t[i + 1]), pd(t[i + 3])));
    r[i + 3] = ps(_mm512_unpackhi_pd(pd(t[i + 1]), pd(t[i + 3])));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

#else

TANDEM_SIMD void transpose(Vec (&r)[8]) {
  Vec t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = t[i];
  }
}

#endif

/// Calls write(i, units i of the lines, one a lane) for the units of `depth` elements of `lines` lines, of which there
/// are kLanes at most of each.
template <class Units, class Source, class Write>
TANDEM_SIMD void transpose_units(const Source* from, std::int64_t stride, std::int64_t lines, std::int64_t depth,
                                 Write&& write) {
  Vec r[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    r[i] = i < lines ? Units::along(from + i * stride, depth) : broadcast(0);
  }
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < units_of<Units>(depth)) {
      write(i, r[i]);
    }
  }
}

/// The function packs the lines that pack_depths() takes to lines of units kLeftStride apart. It writes whole squares.
template <class Units, class Source>
void pack_columns(const Source* from, std::int64_t stride, std::int64_t lines, std::int64_t depth, float* to) {
  for (std::int64_t line = 0; line < lines; line += kLanes, to += kLanes * kLeftStride) {
    const Mask here = first(lines - line);
    for (std::int64_t unit = 0; unit < units_of<Units>(depth); unit += kLanes) {
      Vec r[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t k = (unit + i) * Units::kDepth;
        r[i] = k < depth ? Units::across(from + k * stride + line, stride, k + 1 < depth, here) : broadcast(0);
      }
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        store(to + i * kLeftStride + unit, r[i]);
      }
    }
  }
}

/// Calls write(c, column c of the square, its lanes being rows) for the first `cols` of `rows` x `cols` elements.
template <class Write>
TANDEM_SIMD void transpose_square(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t cols,
                                  Write&& write) {
  transpose_units<FloatUnits>(from, stride, rows, cols, write);
}

/// A right side that is dense along its depth, element (k, c) at c * stride + k: to panels of kTileCols columns, unit
/// (k, c) at k * kTileCols + c, zeros where there are no columns.
template <class Units, class Source>
void pack_transposed(const Source* from, std::int64_t stride, std::int64_t depth, std::int64_t cols, float* to) {
  constexpr std::int64_t kStep = Units::kDepth * kLanes;
  const std::int64_t units = units_of<Units>(depth);
  for (std::int64_t c = 0; c < cols; c += kLanes) {
    float* panel = to + c / kTileCols * kTileCols * units + c % kTileCols;
    const std::int64_t here = cols - c < kLanes ? cols - c : kLanes;
    for (std::int64_t k = 0; k < depth; k += kStep, panel += kLanes * kTileCols) {
      transpose_units<Units>(from + c * stride + k, stride, here, depth - k < kStep ? depth - k : kStep,
                             [&](std::int64_t i, Vec v) { store(panel + i * kTileCols, v); });
    }
  }
}

/// Packs a matrix that is dense along its columns: element (k, c) is at k * stride + c. The matrix is read in its order
/// in memory, because it may come from main memory.
template <class Units, class Source>
void pack_panels(const Source* from, std::int64_t stride, std::int64_t depth, std::int64_t cols, float* to) {
  const std::int64_t panel = kTileCols * units_of<Units>(depth);
  // Several lines at a time, whose units lie side by side in a panel.
  const auto pack_lines = [&]<int kLines>(std::integral_constant<int, kLines>, const Source* lines, bool second) {
    constexpr std::int64_t kDepths = kLines * Units::kDepth;
    for (std::int64_t k = kDepths; k < 2 * kDepths; ++k) {
      fetch_line(lines + k * stride);
    }
    float* out = to;
    for (std::int64_t c = 0; c < cols; c += kTileCols, out += panel) {
#pragma GCC unroll 4
      for (int i = 0; i < kLines; ++i) {
        const Source* const line = lines + i * Units::kDepth * stride + c;
        float* const units = out + i * kTileCols;
        if (c + kTileCols <= cols) {
          store(units, Units::across(line, stride, second));
          store(units + kLanes, Units::across(line + kLanes, stride, second));
        } else {
          store(units, Units::across(line, stride, second, first(cols - c)));
          if (c + kLanes < cols) {
            store(units + kLanes, Units::across(line + kLanes, stride, second, first(cols - c - kLanes)));
          }
        }
      }
    }
    to += kLines * kTileCols;
  };
  constexpr int kLines = 4;
  std::int64_t k = 0;
  for (; k + kLines * Units::kDepth <= depth; k += kLines * Units::kDepth) {
    pack_lines(std::integral_constant<int, kLines>(), from + k * stride, true);
  }
  for (; k < depth; k += Units::kDepth) {
    pack_lines(std::integral_constant<int, 1>(), from + k * stride, k + 1 < depth);
  }
  for (std::int64_t unit = up(depth, Units::kDepth); unit < units_of<Units>(depth); ++unit, to += kTileCols) {
    for (std::int64_t c = 0; c < cols; c += kLanes) {
      store(to + c / kTileCols * panel + c % kTileCols, broadcast(0));
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
