#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/philox.h>

// Neighbouring Philox blocks, computed in registers. Their numbers are those of philox().

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

// Computes Philox4x32-10 in lanes of 64 bits, of which only the lower half is significant. Products and xors leave
// other bits in the upper half, which the next product ignores. Pairs of registers are interleaved at the end, so the
// counters are out of order.
#if defined(__AVX512F__)

using Counters = __m512i;
inline constexpr int kCounters = 8;
TANDEM_SIMD Counters all(std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
TANDEM_SIMD Counters count_from(std::uint64_t x) {
  return _mm512_add_epi64(all(x), _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
}
TANDEM_SIMD Counters product(Counters a, std::uint32_t b) { return _mm512_mul_epu32(a, all(b)); }
TANDEM_SIMD Counters upper(Counters a) { return _mm512_srli_epi64(a, 32); }
TANDEM_SIMD Counters merged(Counters low, Counters high) {
  return _mm512_mask_blend_epi32(0xaaaa, low, _mm512_slli_epi64(high, 32));
}
TANDEM_SIMD void store_interleaved(std::uint32_t* out, Counters a, Counters b) {
  _mm512_storeu_si512(out, _mm512_unpacklo_epi64(a, b));
  _mm512_storeu_si512(out + 2 * kCounters, _mm512_unpackhi_epi64(a, b));
}

#elif defined(__AVX2__)

using Counters = __m256i;
inline constexpr int kCounters = 4;
TANDEM_SIMD Counters all(std::uint64_t x) { return _mm256_set1_epi64x(static_cast<long long>(x)); }
TANDEM_SIMD Counters count_from(std::uint64_t x) { return _mm256_add_epi64(all(x), _mm256_setr_epi64x(0, 2, 1, 3)); }
TANDEM_SIMD Counters product(Counters a, std::uint32_t b) { return _mm256_mul_epu32(a, all(b)); }
TANDEM_SIMD Counters upper(Counters a) { return _mm256_srli_epi64(a, 32); }
TANDEM_SIMD Counters merged(Counters low, Counters high) {
  return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
}
TANDEM_SIMD void store_interleaved(std::uint32_t* out, Counters a, Counters b) {
  _mm256_storeu_si256(reinterpret_cast<Counters*>(out), _mm256_unpacklo_epi64(a, b));
  _mm256_storeu_si256(reinterpret_cast<Counters*>(out + 2 * kCounters), _mm256_unpackhi_epi64(a, b));
}

#endif

#if defined(__AVX2__)

inline constexpr int kRegisters = 2;  // two registers side by side hide the latency of a product
/// The numbers that one call of draw_numbers() draws.
inline constexpr int kPhiloxNumbers = 4 * kRegisters * kCounters;

/// Draws `kPhiloxNumbers` numbers, starting at block `counter`.
TANDEM_SIMD void draw_numbers(std::uint32_t* out, std::uint64_t key, std::uint64_t counter) {
  Counters x0[kRegisters], x1[kRegisters], x2[kRegisters], x3[kRegisters];
#pragma GCC unroll 2
  for (int r = 0; r < kRegisters; ++r) {
    x0[r] = count_from(counter + static_cast<std::uint64_t>(r * kCounters));
    x1[r] = upper(x0[r]);
    x2[r] = x3[r] = all(0);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
    for (int r = 0; r < kRegisters; ++r) {
      const Counters p0 = product(x0[r], 0xD2511F53u);
      const Counters p1 = product(x2[r], 0xCD9E8D57u);
      x0[r] = upper(p1) ^ x1[r] ^ all(k0);
      x1[r] = p1;
      x2[r] = upper(p0) ^ x3[r] ^ all(k1);
      x3[r] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRegisters; ++r) {
    store_interleaved(out + 4 * kCounters * r, merged(x0[r], x1[r]), merged(x2[r], x3[r]));
  }
}

#else

inline constexpr int kPhiloxNumbers = 4;

TANDEM_SIMD void draw_numbers(std::uint32_t* out, std::uint64_t key, std::uint64_t counter) {
  const auto block = philox(key, counter);
  for (int i = 0; i < kPhiloxNumbers; ++i) {
    out[i] = block[static_cast<std::size_t>(i)];
  }
}

#endif

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
