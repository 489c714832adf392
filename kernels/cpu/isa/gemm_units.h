#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/isa/half_lanes.h>
#include <tandem/kernels/cpu/isa/simd.h>

// The packed operands of a product consist of units of 32 bits, each of them one f32 or two bf16 that are neighbours
// along the depth. Drivers are the same for both, and so are tiles but for those of the matrix unit (gemm_amx.cpp).

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

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
