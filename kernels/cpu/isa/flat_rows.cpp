#include <tandem/kernels/cpu/flat_rows.h>

#include <tandem/kernels/cpu/isa/half_lanes.h>
#include <tandem/kernels/cpu/isa/simd.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// add(value, sum) for each value, in 32 chains whatever the registers' size. A 0 adds nothing.
template <class Add>
TANDEM_SIMD double sum_in_lanes(const float* values, std::int64_t count, Add&& add) {
  constexpr int kSums = 32;
  constexpr int kVecs = kSums / kLanes;
  Wide sums[2 * kVecs] = {};
  const auto add_both = [&](int v, Vec value) __attribute__((always_inline)) {
    sums[2 * v] = add(low_half(value), sums[2 * v]);
    sums[2 * v + 1] = add(high_half(value), sums[2 * v + 1]);
  };
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      add_both(v, load(values + i + v * kLanes));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const std::int64_t at = i + v * kLanes;
    add_both(v, load(values + at, first(count - at)));
  }
  double lanes[kSums];
  __builtin_memcpy(lanes, sums, sizeof lanes);
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

template <class Out, class In>
[[gnu::always_inline]] inline void convert_row(Out* out, const In* in, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = Out(in[i]);
  }
}

}  // namespace

void scale_nonzero(float* values, float factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = values[i] * factor;
    values[i] = values[i] == 0 ? values[i] : scaled;
  }
}

void clamp_f32(float* values, float limit, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    values[i] = value > limit ? limit : value < -limit ? -limit : value;
  }
}

void move_average(float* average, const float* values, float decay, float rest, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    average[i] = decay * average[i] + rest * values[i];
  }
}

double sum_of_squares(const float* values, std::int64_t count) {
  // The square of a float is exact in f64.
  return sum_in_lanes(values, count,
                      [](Wide value, Wide sum) __attribute__((always_inline)) { return fma(value, value, sum); });
}

double sum_of_magnitudes(const float* values, std::int64_t count) {
  return sum_in_lanes(values, count, [](Wide value, Wide sum) __attribute__((always_inline)) {
    return sum + (value < Wide{} ? -value : value);
  });
}

double largest_magnitude(const float* values, std::int64_t count) {
  // Without their signs, floats are ordered like the integers of their bits, with NaN above infinity.
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t bits;
    __builtin_memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  float value;
  __builtin_memcpy(&value, &largest, sizeof value);
  return static_cast<double>(value);
}

// The mask keeps the loop free of branches, which would often be mispredicted.
void select_32(std::uint32_t* out, const bool* condition, const std::uint32_t* a, const std::uint32_t* b,
               std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition[i]);
    out[i] = (a[i] & mask) | (b[i] & ~mask);
  }
}

void add_f32(float* to, const float* values, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = to[i] + values[i];
  }
}

void sum_two(float* out, const float* a, const float* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = a[i] + b[i];
  }
}

#if defined(__AVX2__) && !defined(__AVX512F__)

namespace {

template <class T, class Change>
TANDEM_SIMD void narrow_row(T* out, const float* in, std::int64_t count, Change&& change) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_rounded(out + i, change(load(in + i)), first(kLanes));
  }
  convert_row(out + i, in + i, count - i);
}

template <class T>
TANDEM_SIMD void widen_row(float* out, const T* in, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, load_as_floats(in + i));
  }
  convert_row(out + i, in + i, count - i);
}

}  // namespace

void narrow_bf16(BFloat16* out, const float* in, std::int64_t count) {
  narrow_row(out, in, count, [](Vec value) __attribute__((always_inline)) { return value; });
}
void narrow_f16(Float16* out, const float* in, std::int64_t count) {
  // The processor's instruction keeps what a NaN carries, where Float16(float) does not.
  narrow_row(out, in, count, [](Vec value) __attribute__((always_inline)) {
    return value == value ? value : from_bits((bits_of(value) & INT32_MIN) | 0x7fc00000);
  });
}
void widen_bf16(float* out, const BFloat16* in, std::int64_t count) { widen_row(out, in, count); }
void widen_f16(float* out, const Float16* in, std::int64_t count) { widen_row(out, in, count); }

#else

void narrow_bf16(BFloat16* out, const float* in, std::int64_t count) { convert_row(out, in, count); }
void narrow_f16(Float16* out, const float* in, std::int64_t count) { convert_row(out, in, count); }
void widen_bf16(float* out, const BFloat16* in, std::int64_t count) { convert_row(out, in, count); }
void widen_f16(float* out, const Float16* in, std::int64_t count) { convert_row(out, in, count); }

#endif

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
