#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

// The 16-bit floating-point types are for storage only. Arithmetic happens in f32, through the implicit conversion, and
// the result is rounded once, to nearest with ties to even, when it is stored. The compiler can turn every branch of
// the conversions into a select, so loops over them vectorise.

/// bfloat16: the upper half of an f32. 8 bits of exponent, 8 significant bits.
class BFloat16 {
 public:
  BFloat16() = default;
  TANDEM_HD constexpr explicit BFloat16(float value) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits_) : "f"(value));
#else
    const auto from = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (from + 0x7FFF + ((from >> 16) & 1)) >> 16;
    const std::uint32_t quiet = (from >> 16) | 0x40;  // rounding could turn a NaN into infinity
    bits_ = static_cast<std::uint16_t>((from & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
#endif
  }
  /// The exact value.
  constexpr operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

  /// The number with these bits.
  static constexpr BFloat16 from_bits(std::uint16_t bits) noexcept {
    BFloat16 made{};
    made.bits_ = bits;
    return made;
  }
  /// Sign, exponent, fraction.
  constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  std::uint16_t bits_;
};

/// IEEE 754 binary16: 5 bits of exponent, 11 significant bits; the largest value is 65504.
class Float16 {
 public:
  Float16() = default;
  TANDEM_HD constexpr explicit Float16(float value) noexcept {
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits_) : "f"(value));
#else
    const auto from = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = from & 0x7FFFFFFF;
    // Normal: the exponent is moved from bias 127 to 15, then 13 bits are rounded off. A carry into the exponent is
    // right, up to infinity.
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    // Subnormal: adding 0.5 lets the f32 adder round at the last bit of a half, 2^-24, and leaves the result below.
    const auto shifted = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    const std::uint32_t subnormal = shifted - std::bit_cast<std::uint32_t>(0.5F);
    const std::uint32_t special = magnitude > kInfinity32 ? 0x7E00 : 0x7C00;
    const std::uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    bits_ = static_cast<std::uint16_t>((magnitude >= (143u << 23) ? special : finite) | ((from >> 16) & 0x8000));
#endif
  }
  /// The exact value.
  TANDEM_HD constexpr operator float() const noexcept {
#if defined(__CUDA_ARCH__)
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits_));
    return value;
#else
    const std::uint32_t magnitude = bits_ & 0x7FFFu;
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
    const std::uint32_t quiet = magnitude > 0x7C00 ? 0x400000 : 0;  // NaN becomes what processors make of it
    const std::uint32_t special = (magnitude << 13) | kInfinity32 | quiet;
    const std::uint32_t finite = magnitude < 0x400 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    return std::bit_cast<float>((magnitude >= 0x7C00 ? special : finite) | ((bits_ & 0x8000u) << 16));
#endif
  }

  /// The number with these bits.
  static constexpr Float16 from_bits(std::uint16_t bits) noexcept {
    Float16 made{};
    made.bits_ = bits;
    return made;
  }
  /// Sign, exponent, fraction.
  constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  static constexpr std::uint32_t kInfinity32 = 0x7F800000;
  std::uint16_t bits_;
};

/// The type in which arithmetic on T happens: f32 for the 16-bit types, T itself for the others.
template <class T>
struct ComputeTypeOf {
  /// The type in which arithmetic on T happens.
  using type = T;
};
template <>
struct ComputeTypeOf<BFloat16> {
  using type = float;
};
template <>
struct ComputeTypeOf<Float16> {
  using type = float;
};
/// The type in which arithmetic on T happens.
template <class T>
using ComputeType = typename ComputeTypeOf<T>::type;

/// Whether T is BFloat16 or Float16.
template <class T>
inline constexpr bool is_16_bit = !std::is_same_v<T, ComputeType<T>>;

}  // namespace tandem::inline v0
