#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Element type of a tensor. f32 and f64 take part in training; the integer types and bool carry data (class
/// indices, images, masks).
enum class DType : std::uint8_t { f32, f64, i64, i32, u8, boolean };

/// Size of one element in bytes.
constexpr std::size_t item_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::f64:
    case DType::i64: return 8;
    case DType::u8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// Whether it is one of those that gradients can have.
constexpr bool is_floating_point(DType dtype) noexcept { return dtype == DType::f32 || dtype == DType::f64; }

/// "f32", "i64", ..., "bool".
TANDEM_API std::string_view name(DType dtype) noexcept;

/// The DType that stores the C++ type T; only the six stored types compile.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "tandem stores float, double, int64_t, int32_t, uint8_t and bool");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace tandem::inline v0
