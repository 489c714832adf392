#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tandem/core/export.h>
#include <tandem/core/float16.h>

// Scalar arithmetic shared by all element types and all backends. Integers wrap around like NumPy's and PyTorch's. C++
// leaves the overflow of signed integers undefined, so these functions compute with unsigned ones.

namespace tandem::inline v0::kernels {

namespace detail {
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
  using type = T;
};
template <class T>
struct Wrapping<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using WrappingType = typename Wrapping<T>::type;
}  // namespace detail

// The 16-bit types convert to f32 to add, subtract and multiply, and round once.
template <class T>
[[gnu::always_inline]] constexpr T wrapping_add(T a, T b) noexcept {
  using W = detail::WrappingType<T>;
  return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

template <class T>
[[gnu::always_inline]] constexpr T wrapping_sub(T a, T b) noexcept {
  using W = detail::WrappingType<T>;
  return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
}

template <class T>
[[gnu::always_inline]] constexpr T wrapping_mul(T a, T b) noexcept {
  using W = detail::WrappingType<T>;
  return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
}

/// Converts like a C++ cast; bool is value != 0. Floating point becomes a narrow integer by way of i64, so that -1 is
/// 255 in u8 on every machine, and becomes a 16-bit type by way of f32, like in PyTorch.
template <class Out, class In>
constexpr Out convert(In value) noexcept {
  if constexpr (is_16_bit<In> && !std::is_same_v<In, Out>) {
    return convert<Out>(static_cast<float>(value));
  } else if constexpr (is_16_bit<Out> && !std::is_same_v<In, Out>) {
    return Out(static_cast<float>(value));
  } else if constexpr (std::is_same_v<Out, bool>) {
    return value != In(0);
  } else if constexpr (std::is_floating_point_v<In> && std::is_integral_v<Out> && sizeof(Out) < 8) {
    return static_cast<Out>(static_cast<std::int64_t>(value));
  } else {
    return static_cast<Out>(value);
  }
}

/// Converts like convert(), but clamps values beyond T's range to its ends.
template <class T>
constexpr T saturated(double value) noexcept {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    if (value >= static_cast<double>(Limits::max())) {
      return Limits::max();
    }
    if (value <= static_cast<double>(Limits::lowest())) {
      return Limits::lowest();
    }
  }
  return convert<T>(value);
}

// Products that are rounded on their own. A GPU's compiler would otherwise turn a*b + c into one operation with one
// rounding, and numbers that must be the same on every device would differ. (CPU sources are compiled without that
// contraction. The emulated GPU's functions are macros.)

TANDEM_HD inline float rounded_mul(float a, float b) noexcept {
#if defined(__CUDA_ARCH__) || defined(__fmul_rn)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TANDEM_HD inline double rounded_mul(double a, double b) noexcept {
#if defined(__CUDA_ARCH__) || defined(__dmul_rn)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace tandem::inline v0::kernels
