#pragma once

#include <tandem/kernels/cpu/isa/vector_math.h>

// Powers of floats. The logarithm is computed in f64, because its error is multiplied by the exponent.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

#if defined(__FMA__)

using WideBits = std::int64_t __attribute__((vector_size(sizeof(Wide))));

// A sum with it is a whole number, in the lowest bits.
inline constexpr double kWideShift = 6755399441055744;  // 1.5 * 2^52

/// The logarithm to base 2 of x >= 0, to 45 bits. That of 0 and of infinity is a number far out of a float's range.
TANDEM_SIMD Wide log2_of(Wide x) {
  const WideBits bits = reinterpret_cast<WideBits>(x);
  // x = m 2^e with m in [3/4, 3/2); e without an arithmetic shift, which AVX2 lacks for 64 bits.
  using Unsigned = std::uint64_t __attribute__((vector_size(sizeof(Wide))));
  const WideBits e =
      reinterpret_cast<WideBits>(reinterpret_cast<Unsigned>(bits - 0x3fe8000000000000 + 0x4000000000000000) >> 52) -
      1024;
  const Wide m = reinterpret_cast<Wide>(bits - (e << 52));
  const Wide one = broadcast_wide(1);
  const Wide s = (m - one) / (m + one);  // log(m) = 2 artanh(s)
  const Wide sum = polynomial(s * s, {1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17});
  const Wide shift = broadcast_wide(kWideShift);
  const Wide exponent = reinterpret_cast<Wide>(reinterpret_cast<WideBits>(shift) + e) - shift;
  const Wide log = fma(s * broadcast_wide(2.8853900817779268), sum, exponent);  // 2 / ln 2
  const Wide far = broadcast_wide(1e300);
  return x == Wide{} ? -far : x < broadcast_wide(1e200) ? log : far;
}

/// 2^x, for an x out of a float's range as well.
TANDEM_SIMD Wide exp2_of(Wide x) {
  const Wide limit = broadcast_wide(200);
  const Wide inside = x < -limit ? -limit : x > limit ? limit : x;
  const Wide shift = broadcast_wide(kWideShift);
  const Wide shifted = inside + shift;
  const Wide rest = inside - (shifted - shift);
  const WideBits n = reinterpret_cast<WideBits>(shifted) - reinterpret_cast<WideBits>(shift);
  // The series of exp(rest ln 2).
  const Wide power =
      polynomial(rest, {1.0, 0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628477,
                        0.0013333558146428443, 0.00015403530393381608, 1.5252733804059838e-05, 1.3215486790144305e-06});
  return power * reinterpret_cast<Wide>((n + 1023) << 52);
}

#endif

/// x to the power y, within one unit in the last place. Exponents of magnitude 2^22 or more, and NaNs, go to the C
/// library, lane by lane. So does everything where there are no fused multiply-adds.
TANDEM_SIMD Vec pow(Vec x, Vec y) {
#if defined(__FMA__)
  const Vec size = magnitude(x);
  Vec value = joined(exp2_of(low_half(y) * log2_of(low_half(size))), exp2_of(high_half(y) * log2_of(high_half(size))));
  if (any_negative(bits_of(x))) {
    const auto is_whole_number = [](Vec v) __attribute__((always_inline)) {
      const Vec shift = broadcast(kShift);
      return Bits((v + shift) - shift == v);
    };
    const Bits is_whole = is_whole_number(y);
    const Bits is_odd = is_whole & ~is_whole_number(y * broadcast(0.5F));
    const Bits has_none = (x < Vec{}) & ~is_whole & (size < broadcast(kInfinity));
    const Vec signed_value = from_bits(bits_of(value) ^ (bits_of(x) & is_odd & ~0x7fffffff));
    value = has_none != 0 ? broadcast(std::numeric_limits<float>::quiet_NaN()) : signed_value;
  }
  const Bits others = ~(magnitude(y) < broadcast(4194304)) | (x != x);
#else
  Vec value{};
  const Bits others = ~Bits{};
#endif
  return with_lanes(value, others,
                    [x, y](int lane) __attribute__((always_inline)) { return __builtin_powf(x[lane], y[lane]); });
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
