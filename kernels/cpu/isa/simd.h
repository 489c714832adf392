#pragma once

#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

// One register of floats (Vec), and one of half as many doubles (Wide), for the instruction set that the source is
// compiled for, with the few operations that the kernels need. + - * / and comparisons are the compiler's own on vector
// types. Only sources in isa/ include this header.

#define TANDEM_SIMD [[gnu::always_inline]] inline

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Fetches a cache line that will be written, and takes it away from other cores. In assembler, because GCC removes
/// calls of functions that do nothing but __builtin_prefetch().
TANDEM_SIMD void own_line(const float* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1);
#endif
}

#if defined(__AVX512F__)

using Vec = __m512;
inline constexpr int kLanes = 16;
using Mask = __mmask16;

TANDEM_SIMD Vec broadcast(float x) { return _mm512_set1_ps(x); }
TANDEM_SIMD Vec load(const float* p) { return _mm512_loadu_ps(p); }
TANDEM_SIMD void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
/// Mask of the first `count` lanes: none if it is negative, all if it is larger than kLanes.
TANDEM_SIMD Mask first(std::int64_t count) {
  return count >= kLanes ? Mask(0xffff) : count <= 0 ? Mask(0) : Mask((1U << count) - 1);
}
/// Mask of the lanes [from, to), to load.
TANDEM_SIMD Mask between(std::int64_t from, std::int64_t to) { return Mask(first(to) & ~first(from)); }
/// Loads the masked lanes. The other lanes are 0, and their memory is not touched.
TANDEM_SIMD Vec load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
TANDEM_SIMD void store(float* p, Vec v, Mask mask) { _mm512_mask_storeu_ps(p, mask, v); }
/// a * b + c, rounded once if the machine can.
TANDEM_SIMD Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
/// The larger of a and b; b if one of them is NaN.
TANDEM_SIMD Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
/// The smaller of a and b; b if one of them is NaN.
TANDEM_SIMD Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
/// 0 where result <= 0, else v, also for a NaN, like relu_is_off().
TANDEM_SIMD Vec unless_off(Vec result, Vec v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(result, _mm512_setzero_ps(), _CMP_NLE_UQ), v);
}
TANDEM_SIMD Vec sqrt(Vec v) { return _mm512_sqrt_ps(v); }

using Wide = __m512d;
TANDEM_SIMD Wide broadcast_wide(double x) { return _mm512_set1_pd(x); }
TANDEM_SIMD Wide low_half(Vec v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
TANDEM_SIMD Wide high_half(Vec v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
/// Rounds the lanes of two registers to those of one.
TANDEM_SIMD Vec joined(Wide low, Wide high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
TANDEM_SIMD Wide fma(Wide a, Wide b, Wide c) { return _mm512_fmadd_pd(a, b, c); }

#elif defined(__AVX2__)

using Vec = __m256;
inline constexpr int kLanes = 8;
struct Mask {
  __m256i lanes;
  int count;
};

TANDEM_SIMD Vec broadcast(float x) { return _mm256_set1_ps(x); }
TANDEM_SIMD Vec load(const float* p) { return _mm256_loadu_ps(p); }
TANDEM_SIMD void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
TANDEM_SIMD Mask first(std::int64_t count) {
  const int lanes = count >= kLanes ? kLanes : count <= 0 ? 0 : static_cast<int>(count);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), lanes};
}
TANDEM_SIMD Mask between(std::int64_t from, std::int64_t to) {
  return {_mm256_andnot_si256(first(from).lanes, first(to).lanes), 0};
}
TANDEM_SIMD Vec load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask.lanes); }
// In pieces: AMD's processors take twelve cycles or more for a masked store.
TANDEM_SIMD void store(float* p, Vec v, Mask mask) {
  if (mask.count == kLanes) {
    return store(p, v);
  }
  __m128 rest = _mm256_castps256_ps128(v);
  if ((mask.count & 4) != 0) {
    _mm_storeu_ps(p, rest);
    p += 4;
    rest = _mm256_extractf128_ps(v, 1);
  }
  if ((mask.count & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
    p += 2;
    rest = _mm_movehl_ps(rest, rest);
  }
  if ((mask.count & 1) != 0) {
    _mm_store_ss(p, rest);
  }
}
TANDEM_SIMD Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
TANDEM_SIMD Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
TANDEM_SIMD Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
TANDEM_SIMD Vec unless_off(Vec result, Vec v) {
  return _mm256_and_ps(v, _mm256_cmp_ps(result, _mm256_setzero_ps(), _CMP_NLE_UQ));
}
TANDEM_SIMD Vec sqrt(Vec v) { return _mm256_sqrt_ps(v); }

using Wide = __m256d;
TANDEM_SIMD Wide broadcast_wide(double x) { return _mm256_set1_pd(x); }
TANDEM_SIMD Wide low_half(Vec v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
TANDEM_SIMD Wide high_half(Vec v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
TANDEM_SIMD Vec joined(Wide low, Wide high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }
TANDEM_SIMD Wide fma(Wide a, Wide b, Wide c) { return _mm256_fmadd_pd(a, b, c); }

#else

using Vec = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;
struct Mask {
  std::int64_t from, to;
};

TANDEM_SIMD Vec broadcast(float x) { return Vec{x, x, x, x}; }
TANDEM_SIMD Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
TANDEM_SIMD void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
TANDEM_SIMD Mask first(std::int64_t count) { return {0, count >= kLanes ? kLanes : count <= 0 ? 0 : count}; }
TANDEM_SIMD Mask between(std::int64_t from, std::int64_t to) { return {first(from).to, first(to).to}; }
TANDEM_SIMD Vec load(const float* p, Mask mask) {
  Vec v{};
  if (mask.from < mask.to) {
    __builtin_memcpy(reinterpret_cast<float*>(&v) + mask.from, p + mask.from,
                     static_cast<std::size_t>(mask.to - mask.from) * sizeof(float));
  }
  return v;
}
TANDEM_SIMD void store(float* p, Vec v, Mask mask) {
  __builtin_memcpy(p, &v, static_cast<std::size_t>(mask.to) * sizeof(float));
}
TANDEM_SIMD Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
TANDEM_SIMD Vec max(Vec a, Vec b) { return a > b ? a : b; }
TANDEM_SIMD Vec min(Vec a, Vec b) { return a < b ? a : b; }
TANDEM_SIMD Vec unless_off(Vec result, Vec v) { return result <= Vec{} ? Vec{} : v; }
TANDEM_SIMD Vec sqrt(Vec v) {
  return Vec{__builtin_sqrtf(v[0]), __builtin_sqrtf(v[1]), __builtin_sqrtf(v[2]), __builtin_sqrtf(v[3])};
}

using Wide = double __attribute__((vector_size(16)));
TANDEM_SIMD Wide broadcast_wide(double x) { return Wide{x, x}; }
TANDEM_SIMD Wide low_half(Vec v) { return Wide{double{v[0]}, double{v[1]}}; }
TANDEM_SIMD Wide high_half(Vec v) { return Wide{double{v[2]}, double{v[3]}}; }
TANDEM_SIMD Vec joined(Wide low, Wide high) {
  return Vec{static_cast<float>(low[0]), static_cast<float>(low[1]), static_cast<float>(high[0]),
             static_cast<float>(high[1])};
}
TANDEM_SIMD Wide fma(Wide a, Wide b, Wide c) { return a * b + c; }

#endif

/// Whether loads and stores with a mask take no longer than whole ones.
inline constexpr bool kMasksAreCheap = kLanes == 16;

/// The bits of a register, as integers.
using Bits = std::int32_t __attribute__((vector_size(sizeof(Vec))));

TANDEM_SIMD Bits bits_of(Vec v) { return reinterpret_cast<Bits>(v); }
TANDEM_SIMD Vec from_bits(Bits bits) { return reinterpret_cast<Vec>(bits); }
#if defined(__AVX512F__)
TANDEM_SIMD Bits load(const std::int32_t* p, Mask mask) {
  return reinterpret_cast<Bits>(_mm512_maskz_loadu_epi32(mask, p));
}
TANDEM_SIMD void store(std::int32_t* p, Bits v, Mask mask) {
  _mm512_mask_storeu_epi32(p, mask, reinterpret_cast<__m512i>(v));
}
#elif defined(__AVX2__)
TANDEM_SIMD Bits load(const std::int32_t* p, Mask mask) {
  return reinterpret_cast<Bits>(_mm256_maskload_epi32(p, mask.lanes));
}
TANDEM_SIMD void store(std::int32_t* p, Bits v, Mask mask) {
  if (mask.count == kLanes) {
    __builtin_memcpy(p, &v, sizeof(v));
  } else {
    _mm256_maskstore_epi32(p, mask.lanes, reinterpret_cast<__m256i>(v));
  }
}
#else
TANDEM_SIMD Bits load(const std::int32_t* p, Mask mask) {
  Bits v{};
  __builtin_memcpy(&v, p, static_cast<std::size_t>(mask.to) * sizeof(std::int32_t));
  return v;
}
TANDEM_SIMD void store(std::int32_t* p, Bits v, Mask mask) {
  __builtin_memcpy(p, &v, static_cast<std::size_t>(mask.to) * sizeof(std::int32_t));
}
#endif
TANDEM_SIMD Vec to_floats(Bits numbers) { return __builtin_convertvector(numbers, Vec); }
TANDEM_SIMD Vec magnitude(Vec v) { return from_bits(bits_of(v) & 0x7fffffff); }
/// v with the sign of `sign`. v must be positive or have that sign already.
TANDEM_SIMD Vec with_sign_of(Vec sign, Vec v) { return from_bits(bits_of(v) | (bits_of(sign) & ~0x7fffffff)); }

/// Every second lane of both registers, from lane kFirst on.
template <int kFirst>
TANDEM_SIMD Bits every_second_lane(Bits low, Bits high) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(low, high, kFirst, kFirst + 2, kFirst + 4, kFirst + 6, kFirst + 8, kFirst + 10,
                                 kFirst + 12, kFirst + 14, kFirst + 16, kFirst + 18, kFirst + 20, kFirst + 22,
                                 kFirst + 24, kFirst + 26, kFirst + 28, kFirst + 30);
#elif defined(__AVX2__)
  return __builtin_shufflevector(low, high, kFirst, kFirst + 2, kFirst + 4, kFirst + 6, kFirst + 8, kFirst + 10,
                                 kFirst + 12, kFirst + 14);
#else
  return __builtin_shufflevector(low, high, kFirst, kFirst + 2, kFirst + 4, kFirst + 6);
#endif
}

/// Whether any lane is negative, as a true lane of a comparison is (-1).
TANDEM_SIMD bool any_negative(Bits lanes) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(lanes)) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(reinterpret_cast<__m256>(lanes)) != 0;
#else
  return (lanes[0] | lanes[1] | lanes[2] | lanes[3]) < 0;
#endif
}

/// The lanes' own numbers: 0, 1, 2, ...
TANDEM_SIMD Bits lane_numbers() {
  Bits numbers{};
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) {
    numbers[lane] = lane;
  }
  return numbers;
}
/// v in the first `count` lanes, `other` in the rest.
TANDEM_SIMD Vec first_of(Vec v, std::int64_t count, Vec other) {
  return lane_numbers() < static_cast<std::int32_t>(count < kLanes ? count : kLanes) ? v : other;
}

/// The largest value of the lanes.
TANDEM_SIMD float largest_lane(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  float largest = v[0];
#pragma GCC unroll 8
  for (int lane = 1; lane < kLanes; ++lane) {
    largest = v[lane] > largest ? v[lane] : largest;
  }
  return largest;
#endif
}

/// A sum in f64 of registers of floats.
class Doubles {
 public:
  TANDEM_SIMD void add(Vec v) {
    low_ = low_ + low_half(v);
    high_ = high_ + high_half(v);
  }
  TANDEM_SIMD double total() const {
#if defined(__AVX512F__)
    return _mm512_reduce_add_pd(low_ + high_);
#elif defined(__AVX2__)
    const Wide sum = low_ + high_;
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
#else
    return (low_[0] + low_[1]) + (high_[0] + high_[1]);
#endif
  }

 private:
  Wide low_{};
  Wide high_{};
};

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
