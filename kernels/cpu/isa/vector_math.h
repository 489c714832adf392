#pragma once

#include <limits>

#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/cpu/isa/tanh_table.h>

// Elementary functions of a register of floats, accurate to 2 units in the last place
// (tests/kernels/vector_math_test.cpp) and correct at the ends of their domains. A lane's result depends on that lane
// alone. The polynomials are minimax fits of the function's relative error.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ln 2 in two parts. For the exponent n of any float, n times the first part is exact.
inline constexpr float kLn2High = 0.693145751953125F;
inline constexpr float kLn2Low = 1.42860677e-6F;

// A float's sum with it is a whole number, in the lowest bits.
inline constexpr float kShift = 12582912;  // 1.5 * 2^23

TANDEM_SIMD Vec all_lanes(float x) { return broadcast(x); }
TANDEM_SIMD Wide all_lanes(double x) { return broadcast_wide(x); }

/// Evaluates coefficients[0] + coefficients[1] * x + ...
template <class Register, class T, int kCount>
TANDEM_SIMD Register polynomial(Register x, const T (&coefficients)[kCount]) {
  Register sum = all_lanes(coefficients[kCount - 1]);
#pragma GCC unroll 16
  for (int i = kCount - 2; i >= 0; --i) {
    sum = fma(sum, x, all_lanes(coefficients[i]));
  }
  return sum;
}

/// The parts of x = n ln 2 + r with |r| <= ln 2 / 2; `rest` is (exp(r) - 1 - r) / r^2.
struct ExpParts {
  Vec r;
  Vec n;
  Bits whole;  // n
  Vec rest;
};

/// Splits x, where |x| is at most some thousands. add_low(r) returns r, plus a small part of the argument that x has no
/// digits for.
template <class AddLow>
TANDEM_SIMD ExpParts exp_parts(Vec x, AddLow&& add_low) {
  const Vec shift = broadcast(kShift);
  const Vec shifted = fma(x, broadcast(1.44269504F), shift);
  const Vec n = shifted - shift;
  const Vec r = add_low(fma(n, broadcast(-kLn2Low), fma(n, broadcast(-kLn2High), x)));
  return {r, n, bits_of(shifted) - bits_of(shift),
          polynomial(r, {0.4999999338F, 0.1666652068F, 0.04166841437F, 0.008368704046F, 0.001381277972F})};
}

TANDEM_SIMD ExpParts exp_parts(Vec x) {
  return exp_parts(x, [](Vec r) __attribute__((always_inline)) { return r; });
}

/// exp(r) 2^n, or 0 where x is below the logarithm of the least float. That 0 does not come from underflow, which is
/// slow.
TANDEM_SIMD Vec power_of_parts(const ExpParts& parts, Vec x) {
  const Vec one = broadcast(1);
  const Vec power = fma(fma(parts.rest, parts.r, one), parts.r, one);
  const Vec least = broadcast(-104);
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), power, parts.n);
#else
  // Multiplies in two steps, since 2^n may be outside the range of a float even if the result is inside.
  const Bits half = parts.whole >> 1;
  const Bits other = parts.whole - half;
  const Vec kept = from_bits(bits_of(power) & ~(x < least));
  return kept * from_bits((half + 127) << 23) * from_bits((other + 127) << 23);
#endif
}

TANDEM_SIMD Vec exp(Vec x) { return power_of_parts(exp_parts(min(broadcast(89), max(broadcast(-105), x))), x); }

/// exp(x) for x of at most 0.
TANDEM_SIMD Vec exp_below_one(Vec x) {
#if defined(__AVX512F__)
  return power_of_parts(exp_parts(x), x);  // the result for an x far below -104 is masked out
#else
  return power_of_parts(exp_parts(max(broadcast(-105), x)), x);
#endif
}

/// exp(x + low) for |low| of at most 0.1 and x between -104 and 89.
TANDEM_SIMD Vec exp_of_pair(Vec x, Vec low) {
  return power_of_parts(exp_parts(x, [low](Vec r) __attribute__((always_inline)) { return r + low; }), x);
}

/// exp(x) - 1.
TANDEM_SIMD Vec expm1(Vec x) {
  const ExpParts parts = exp_parts(min(broadcast(89), max(broadcast(-18), x)));
  const Vec of_r = fma(parts.r * parts.r, parts.rest, parts.r);
  const Vec half_power = from_bits((parts.whole + 126) << 23);  // 2^n itself may be too large
  const Vec half = fma(of_r, half_power, half_power - broadcast(0.5F));
  return x == Vec{} ? x : half + half;
}

/// A positive number is (1 + t) 2^exponent with t in [-1/4, 1/2).
struct LogParts {
  Vec t;
  Vec exponent;
};

TANDEM_SIMD LogParts log_parts(Vec x) {
#if defined(__AVX512F__)
  const Vec mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  return {mantissa - broadcast(1), _mm512_getexp_ps(x) - _mm512_getexp_ps(mantissa)};
#else
  const auto denormal = x < broadcast(std::numeric_limits<float>::min());
  const Bits bits = bits_of(denormal ? x * broadcast(8388608) : x);  // 2^23
  const Bits exponent = (bits - 0x3f400000) >> 23;                   // 0.75
  return {from_bits(bits - (exponent << 23)) - broadcast(1), to_floats(exponent - (denormal & 23))};
#endif
}

TANDEM_SIMD Vec log_of(const LogParts& parts) {
  const Vec t = parts.t;
  const Vec square = t * t;
  Vec sum = polynomial(t, {0.3333344971F, -0.2500009514F, 0.1999083092F, -0.1664729188F, 0.1447874586F, -0.1316174556F,
                           0.1046233583F, -0.04506185468F}) *
            (square * t);
  sum = fma(parts.exponent, broadcast(kLn2Low), sum);
  sum = fma(square, broadcast(-0.5F), sum);
  return fma(parts.exponent, broadcast(kLn2High), t + sum);
}

/// `value`, or the value of log(x) where x is not a positive finite number.
TANDEM_SIMD Vec at_ends_of_log(Vec x, Vec value) {
#if defined(__AVX512F__)
  // Four bits for each kind of x: zero gives -inf (4), a negative number NaN (3), infinity itself (5).
  return _mm512_fixupimm_ps(value, x, _mm512_set1_epi32(0x03530400), 0);
#else
  const Vec none = broadcast(std::numeric_limits<float>::quiet_NaN());
  const Vec finite = x < broadcast(kInfinity) ? value : x;
  return x > Vec{} ? finite : (x == Vec{} ? broadcast(-kInfinity) : none);
#endif
}

TANDEM_SIMD Vec log(Vec x) { return at_ends_of_log(x, log_of(log_parts(x))); }

/// 2^-n for whole numbers n between -126 and 126.
TANDEM_SIMD Vec power_of_minus(Vec n) {
  const Vec shift = broadcast(kShift);
  return from_bits((127 - (bits_of(n + shift) - bits_of(shift))) << 23);
}

/// log(x + low) for x of at least 1 and |low| below its last digit. A sum just above 1 keeps its digits.
TANDEM_SIMD Vec log_of_pair(Vec x, Vec low) {
  LogParts parts = log_parts(x);
  parts.t = fma(low, power_of_minus(parts.exponent), parts.t);
  return at_ends_of_log(x, log_of(parts));
}

/// log(1 + x).
TANDEM_SIMD Vec log1p(Vec x) {
  const Vec one = broadcast(1);
  const Vec sum = x + one;
  LogParts parts = log_parts(sum);
  const Vec scale = power_of_minus(parts.exponent);
  // (1 + x) / 2^exponent - 1, computed without the sum, which has lost digits of x.
  parts.t = sum < broadcast(33554432) ? fma(x, scale, scale - one) : parts.t;
  const Vec value = at_ends_of_log(sum, log_of(parts));
  return x == Vec{} ? x : value;
}

/// log(1 + x) for x from 0 to 1.
TANDEM_SIMD Vec log1p_below_one(Vec x) {
  const Vec half = broadcast(0.5F);
  const auto low = x < half;
  return log_of({low ? x : x * half - half, low ? Vec{} : broadcast(1)});
}

#if defined(__AVX512F__)

TANDEM_SIMD Vec look_up(const float (&table)[32], Bits index) {
  return _mm512_permutex2var_ps(load(table), reinterpret_cast<__m512i>(index), load(table + kLanes));
}

/// Evaluates a polynomial for each quarter of an octave. With the tables in cache this is twice as fast as the formula
/// below.
TANDEM_SIMD Vec tanh(Vec x) {
  const Vec size = min(broadcast(9.9F), magnitude(x));  // tanh(9.9) rounds to 1
  const Bits quarter = (bits_of(size) >> 21) - 491;     // 1 from 2^-4 on
  const Bits interval = quarter > 0 ? quarter : Bits{};
  const Vec d = size - look_up(kTanhCentres, interval);
  Vec sum = look_up(kTanhCoefficients[5], interval);
#pragma GCC unroll 8
  for (int k = 4; k >= 0; --k) {
    sum = fma(sum, d, look_up(kTanhCoefficients[k], interval));
  }
  return with_sign_of(x, sum);
}

#else

/// x + x^3 P(x^2) near 0; elsewhere 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
TANDEM_SIMD Vec tanh(Vec x) {
  const Vec one = broadcast(1);
  const Vec square = x * x;
  const Vec inner =
      polynomial(square, {-0.3333331471F, 0.1333248203F, -0.05384068778F, 0.02102125249F, -0.006199682965F});
  const Vec size = min(broadcast(9.02F), magnitude(x));  // tanh(9.02) rounds to 1
  const ExpParts parts = exp_parts(size + size);
  const Vec power = fma(fma(parts.rest, parts.r, one), parts.r, one) * from_bits((parts.whole + 127) << 23);
  const Vec outer = one - broadcast(2) / (power + one);
  return with_sign_of(x, size < broadcast(0.56F) ? fma(x * square, inner, x) : outer);
}

#endif

/// `value`, but of_lane(lane) in the lanes that are set in `others`.
template <class OfLane>
TANDEM_SIMD Vec with_lanes(Vec value, Bits others, OfLane&& of_lane) {
  if (any_negative(others)) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (others[lane] != 0) {
        value[lane] = of_lane(lane);
      }
    }
  }
  return value;
}

/// An angle of `quarter` right angles and r, with |r| of at most pi / 4.
struct AngleParts {
  Vec r;
  Bits quarter;
};

/// The sine of the angle with these parts.
TANDEM_SIMD Vec sin_of_parts(const AngleParts& parts) {
  const Vec square = parts.r * parts.r;
  const Vec sine =
      fma(parts.r * square, polynomial(square, {-0.16666654611F, 0.0083321608736F, -0.00019515295891F}), parts.r);
  const Vec cosine = fma(square * square, polynomial(square, {0.04166664568F, -0.001388731625F, 0.00002443315712F}),
                         fma(square, broadcast(-0.5F), broadcast(1)));
  const Vec value = (parts.quarter & 1) != 0 ? cosine : sine;
  return from_bits(bits_of(value) ^ ((parts.quarter & 2) << 30));
}

/// The sine or the cosine of x. Angles of more than 2^15, whose parts would not be exact, go to the C library, lane by
/// lane. So do all angles where there are no fused multiply-adds.
template <bool kCosine>
TANDEM_SIMD Vec sin_or_cos(Vec x) {
#if defined(__FMA__)
  const Vec shift = broadcast(kShift);
  const Vec shifted = fma(x, broadcast(0.636619772F), shift);
  const Vec n = shifted - shift;
  // pi / 2 in three parts. The first difference is exact.
  const Vec r =
      fma(n, broadcast(1.7151245e-15F), fma(n, broadcast(4.37113883e-8F), fma(n, broadcast(-1.57079637F), x)));
  const Vec value = sin_of_parts({r, bits_of(shifted) - bits_of(shift) + (kCosine ? 1 : 0)});
  const Bits others = ~(magnitude(x) <= broadcast(32768));
#else
  const Vec value{};
  const Bits others = ~Bits{};
#endif
  return with_lanes(value, others, [x](int lane) __attribute__((always_inline)) {
    return kCosine ? __builtin_cosf(x[lane]) : __builtin_sinf(x[lane]);
  });
}

TANDEM_SIMD Vec sin(Vec x) {
  const Vec value = sin_or_cos<false>(x);
  return x == Vec{} ? x : value;  // keeps the sign of a zero
}
TANDEM_SIMD Vec cos(Vec x) { return sin_or_cos<true>(x); }

/// 1 / (1 + exp(-x)).
TANDEM_SIMD Vec sigmoid(Vec x) {
  const Vec one = broadcast(1);
  const Vec power = exp_below_one(-magnitude(x));
  const Vec above = one / (one + power);
  // power * above alone is one rounding further from the power, which matters most for a small result.
  return x >= Vec{} ? above : fma(-power, power * above, power);
}

/// The normal distribution's density without its constant factor, and the cumulative probability of x.
struct Normal {
  Vec density;  // exp(-x^2 / 2)
  Vec cdf;
};

TANDEM_SIMD Normal normal(Vec x) {
  const Vec size = magnitude(x);
  const Vec limit = broadcast(12.9F);  // the density is 0 beyond: smaller products would underflow, which is slow
  const Vec z = min(limit, size);
  const Vec head = from_bits(bits_of(z) & ~0xfff);  // has an exact square; that of z would cost the power digits
  const Vec half = broadcast(-0.5F);
  const Vec power = exp_of_pair(half * (head * head), half * ((z - head) * (z + head)));
  const Vec density = size > limit ? Vec{} : power;
  const Vec above = polynomial(z, {0.5000000032F, 0.4384497393F, 0.1833541288F, 0.0406745915F, 0.004122814601F});
  const Vec below = polynomial(z, {1.0F, 1.674784477F, 1.202988018F, 0.4697858547F, 0.1019624937F, 0.01033424466F});
  const Vec tail = density * above / below;
  return {density, x > Vec{} ? broadcast(1) - tail : tail};
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
