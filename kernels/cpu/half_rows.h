#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tandem/core/float16.h>
#include <tandem/kernels/cpu/flat_rows.h>

// Dense 16-bit arrays for kernels that have fast loops for f32: pieces of them are converted in the first-level cache.

namespace tandem::inline v0::kernels::cpu {

/// Elements of a piece.
inline constexpr std::int64_t kHalfPiece = 1024;
/// Fewer elements than this do not make up for the calls.
inline constexpr std::int64_t kHalfLeast = 32;
/// Whether loops with little arithmetic are faster on pieces than on T itself. BFloat16 is converted by a shift, which
/// the compiler does in vectors.
template <class T>
inline constexpr bool kPiecesPay = std::is_same_v<T, Float16>;

inline void widen(float* out, const BFloat16* in, std::int64_t count) { TANDEM_BY_ISA(widen_bf16)(out, in, count); }
inline void widen(float* out, const Float16* in, std::int64_t count) { TANDEM_BY_ISA(widen_f16)(out, in, count); }
inline void narrow(BFloat16* out, const float* in, std::int64_t count) { TANDEM_BY_ISA(narrow_bf16)(out, in, count); }
inline void narrow(Float16* out, const float* in, std::int64_t count) { TANDEM_BY_ISA(narrow_f16)(out, in, count); }

/// Calls body(floats, first, count) for pieces of `values`: the elements [first, first + count) as floats.
template <class T, class Body>
void for_each_piece(const T* values, std::int64_t count, Body&& body) {
  float floats[kHalfPiece];
  for (std::int64_t first = 0; first < count; first += kHalfPiece) {
    const std::int64_t here = std::min(kHalfPiece, count - first);
    widen(floats, values + first, here);
    body(floats, first, here);
  }
}

/// The same, and rounds what the body makes of the floats back to `values`.
template <class T, class Body>
void change_pieces(T* values, std::int64_t count, Body&& body) {
  for_each_piece(values, count, [&](float* floats, std::int64_t first, std::int64_t here) {
    body(floats, first, here);
    narrow(values + first, floats, here);
  });
}

/// to += values; each sum is rounded once. `values` is `to` or does not overlap it.
template <class T>
void add_rounded(T* to, const T* values, std::int64_t count) {
  if constexpr (kPiecesPay<T>) {
    if (count >= kHalfLeast) {
      float added[kHalfPiece];
      return change_pieces(to, count, [&](float* sums, std::int64_t first, std::int64_t here) {
        widen(added, values + first, here);
        TANDEM_BY_ISA(add_f32)(sums, added, here);
      });
    }
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = T(to[i] + values[i]);
  }
}

}  // namespace tandem::inline v0::kernels::cpu
