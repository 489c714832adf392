#pragma once

#include <cstdint>

#include <tandem/core/float16.h>
#include <tandem/kernels/cpu/isa/simd.h>

// Numbers of 16 bits in memory, f32 in registers.

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

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
