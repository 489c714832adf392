#pragma once

#include <cstdint>

#include <tandem/core/float16.h>
#include <tandem/kernels/cpu/isa/simd.h>

// The packed operands of a product consist of units of 32 bits, each of them one f32 or two bf16 that are neighbours
// along the depth. Drivers are the same for both, and so are tiles but for those of the matrix unit (gemm_amx.cpp).

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

// Loads of kLanes numbers, or of the masked ones, as f32. The other lanes are 0, and their memory is not touched.
template <class... Lanes>
TANDEM_SIMD Vec load_as_floats(const float* p, Lanes... lanes) {
  return load(p, lanes...);
}

#if defined(__AVX512F__)

TANDEM_SIMD __m256i load_halves(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
TANDEM_SIMD __m256i load_halves(const void* p, Mask mask) { return _mm256_maskz_loadu_epi16(mask, p); }
template <class... Lanes>
TANDEM_SIMD Vec load_as_floats(const BFloat16* p, Lanes... lanes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p, lanes...)), 16));
}
template <class... Lanes>
TANDEM_SIMD Vec load_as_floats(const Float16* p, Lanes... lanes) {
  return _mm512_cvtph_ps(load_halves(p, lanes...));
}

#elif defined(__AVX2__)

TANDEM_SIMD __m128i load_halves(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
TANDEM_SIMD __m128i load_halves(const void* p, Mask mask) {
  alignas(16) char halves[16] = {};
  const char* const from = static_cast<const char*>(p);
  for (int i = 0; i < 2 * mask.count; i += 2) {
    __builtin_memcpy(halves + i, from + i, 2);
  }
  return _mm_load_si128(reinterpret_cast<const __m128i*>(halves));
}
template <class... Lanes>
TANDEM_SIMD Vec load_as_floats(const BFloat16* p, Lanes... lanes) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, lanes...)), 16));
}
template <class... Lanes>
TANDEM_SIMD Vec load_as_floats(const Float16* p, Lanes... lanes) {
  return _mm256_cvtph_ps(load_halves(p, lanes...));
}

#endif

// Stores of floats, rounded to nearest, ties to even.
TANDEM_SIMD void store_rounded(float* p, Vec v, Mask mask) { store(p, v, mask); }

#if defined(__AVX512F__)

TANDEM_SIMD void store_rounded(Float16* p, Vec v, Mask mask) {
  _mm256_mask_storeu_epi16(p, mask, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
TANDEM_SIMD void store_rounded(BFloat16* p, Vec v, Mask mask) {
  const Bits bits = bits_of(v);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Bits quiet = (bits >> 16) | 0x40;  // rounding could turn a NaN into infinity
  const Bits halves = (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
  _mm256_mask_storeu_epi16(p, mask, _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(halves)));
}

#elif defined(__AVX2__)

TANDEM_SIMD void store_halves(void* p, __m128i halves, Mask mask) {
  if (mask.count == kLanes) {
    return _mm_storeu_si128(static_cast<__m128i*>(p), halves);
  }
  alignas(16) char from[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(from), halves);
  for (int i = 0; i < 2 * mask.count; i += 2) {
    __builtin_memcpy(static_cast<char*>(p) + i, from + i, 2);
  }
}
TANDEM_SIMD void store_rounded(Float16* p, Vec v, Mask mask) {
  store_halves(p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT), mask);
}
TANDEM_SIMD void store_rounded(BFloat16* p, Vec v, Mask mask) {
  const Bits bits = bits_of(v);
  const Bits rounded = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) & 0xffff;
  const Bits quiet = ((bits >> 16) | 0x40) & 0xffff;  // rounding could turn a NaN into infinity
  const auto halves = reinterpret_cast<__m256i>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
  store_halves(p, _mm256_castsi256_si128(packed), mask);
}

#endif

constexpr std::int64_t min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Units of one f32.
struct FloatUnits {
  static constexpr std::int64_t kDepth = 1;  // how many depths a unit has
  static constexpr std::int64_t kStep = 1;   // how many units a tile takes at a time; zeros follow the last ones

  /// sum + a * b
  TANDEM_SIMD static Vec add(Vec a, Vec b, Vec sum) { return fma(a, b, sum); }
  /// kLanes units of neighbouring depths, or the first `count` depths and zeros.
  template <class Source>
  TANDEM_SIMD static Vec along(const Source* p) {
    return load_as_floats(p);
  }
  template <class Source>
  TANDEM_SIMD static Vec along(const Source* p, std::int64_t count) {
    return load_as_floats(p, first(count));
  }
  /// The units of one depth in kLanes neighbouring lines, or in the masked ones.
  template <class Source, class... Lanes>
  TANDEM_SIMD static Vec across(const Source* p, std::int64_t, bool, Lanes... lanes) {
    return load_as_floats(p, lanes...);
  }
};

#if defined(__AVX512BF16__)

/// Units of two bf16. The processor adds the product of the second, then that of the first, each rounded to f32.
/// Factors and sums below 2^-126 are zeros to it.
struct Bf16Units {
  static constexpr std::int64_t kDepth = 2;
  static constexpr std::int64_t kStep = 1;

  // In assembler, because clang 16 crashes on the intrinsic.
  TANDEM_SIMD static Vec add(Vec a, Vec b, Vec sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }

  TANDEM_SIMD static Vec along(const float* p) { return (Vec)_mm512_cvtne2ps_pbh(load(p + kLanes), load(p)); }
  TANDEM_SIMD static Vec along(const float* p, std::int64_t count) {
    return (Vec)_mm512_cvtne2ps_pbh(load(p + kLanes, first(count - kLanes)), load(p, first(count)));
  }
  TANDEM_SIMD static Vec along(const BFloat16* p) { return _mm512_loadu_ps(p); }
  TANDEM_SIMD static Vec along(const BFloat16* p, std::int64_t count) {
    const __mmask32 mask = count >= 2 * kLanes ? ~__mmask32(0) : count <= 0 ? 0 : (__mmask32(1) << count) - 1;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p));
  }

  /// The units of two depths, of which the second is `stride` elements behind the first; zeros unless it exists.
  template <class... Lanes>
  TANDEM_SIMD static Vec across(const float* p, std::int64_t stride, bool second, Lanes... lanes) {
    const Vec high = second ? load(p + stride, lanes...) : broadcast(0);
    return pairs((__m512i)_mm512_cvtne2ps_pbh(high, load(p, lanes...)));
  }
  template <class... Lanes>
  TANDEM_SIMD static Vec across(const BFloat16* p, std::int64_t stride, bool second, Lanes... lanes) {
    const __m256i high = second ? load_halves(p + stride, lanes...) : _mm256_setzero_si256();
    return pairs(_mm512_inserti64x4(_mm512_castsi256_si512(load_halves(p, lanes...)), high, 1));
  }

 private:
  // Lane i of the lower half and lane i of the upper half become unit i.
  TANDEM_SIMD static Vec pairs(__m512i halves) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(halves));
    const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(halves, 1));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
};

#endif

/// The units of a packed depth of so many elements.
template <class Units>
constexpr std::int64_t units_of(std::int64_t depth) {
  static_assert(Units::kStep == 1 || Units::kStep == kLanes, "packing fills up registers");
  return up(depth, Units::kDepth * Units::kStep) * Units::kStep;
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
