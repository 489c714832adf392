#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tandem/core/dtype.h>

namespace tandem::inline v0 {

namespace detail {

[[noreturn]] TANDEM_API void throw_inexact(std::int64_t value);
[[noreturn]] TANDEM_API void throw_inexact(std::uint64_t value);

/// A number as a double, the form in which kernels receive it. Throws ConfigError for an integer beyond 2^53.
template <std::integral T>
constexpr double exact(T value) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  constexpr auto kExact = static_cast<Wide>(std::int64_t{1} << 53);
  const auto wide = static_cast<Wide>(value);
  if (wide > kExact || (std::is_signed_v<T> && wide < static_cast<Wide>(-kExact))) {
    throw_inexact(wide);
  }
  return static_cast<double>(wide);
}

}  // namespace detail

/// A C++ number in an expression with tensors: `x * 2`, `1.0 - x`. A number never widens a tensor of its own kind: f32
/// times a double stays f32. A floating-point number turns integers into f32, and an integer turns bool into i64, as in
/// PyTorch.
class Scalar {
 public:
  template <std::floating_point T>
  constexpr Scalar(T value) noexcept : value_(static_cast<double>(value)), kind_(DType::f32) {}
  /// Throws ConfigError for an integer beyond 2^53, which a double cannot hold exactly.
  template <std::integral T>
  constexpr Scalar(T value)
      : value_(detail::exact(value)), kind_(std::same_as<T, bool> ? DType::boolean : DType::i64) {}

  /// The number.
  constexpr double value() const noexcept { return value_; }
  /// The dtype of the number on its own: f32, i64 or boolean.
  constexpr DType kind() const noexcept { return kind_; }
  /// The negative number, of the same kind.
  constexpr Scalar operator-() const noexcept {
    Scalar negated = *this;
    negated.value_ = -value_;
    return negated;
  }

 private:
  double value_;
  DType kind_;
};

/// The dtype of an operation on `a` and `b`: the higher of two kinds (bool < integer < floating point), or the wider of
/// two types of one kind. The result of bf16 with f16 is f32.
TANDEM_API DType promote_types(DType a, DType b) noexcept;

}  // namespace tandem::inline v0
