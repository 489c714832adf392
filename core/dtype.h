#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include <tandem/core/export.h>
#include <tandem/core/float16.h>

namespace tandem::inline v0 {

/// Element type of a tensor. The floating point types take part in training; the integer types and bool carry data
/// (class indices, images, masks).
enum class DType : std::uint8_t { f32, f64, bf16, f16, i64, i32, u8, boolean };

/// Size of one element in bytes.
constexpr std::size_t item_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// Whether tensors of this type can have gradients.
constexpr bool is_floating_point(DType dtype) noexcept { return dtype <= DType::f16; }

/// Whether this is a 16-bit floating-point type: stored in 16 bits, computed in f32.
constexpr bool is_reduced_floating_point(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f16; }

/// "f32", "i64", ..., "bool".
TANDEM_API std::string_view name(DType dtype) noexcept;
/// Writes name(dtype).
TANDEM_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// The DType that stores the C++ type T; only the eight stored types compile.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "tandem stores float, double, BFloat16, Float16, int64_t, int32_t, uint8_t and bool");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace tandem::inline v0
