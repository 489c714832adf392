#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>

#include <tandem/kernels/math.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/random.h>
#include <tandem/kernels/rounding.h>

namespace tandem::inline v0::kernels {

/// The element of a RandomFill from its two numbers. The last bits of a GPU's logarithm and cosine may differ;
/// everything else agrees.
template <Distribution distribution, class T>
[[gnu::always_inline]] TANDEM_HD inline T draw(double low, double high, std::uint32_t first, std::uint32_t second) {
  if constexpr (distribution == Distribution::uniform) {
    using C = ComputeType<T>;
    const C span = static_cast<C>(high - low);
    C unit;
    if constexpr (std::is_same_v<C, float>) {
      unit = uniform_f32(first);
    } else {
      unit = static_cast<C>(uniform_f64(first, second));
    }
    const T value = T(static_cast<C>(low) + rounded_mul(span, unit));
    // Rounding may reach the excluded end.
    return C(value) < static_cast<C>(high) || span <= C(0) ? value : convert<T>(low);
  } else if constexpr (distribution == Distribution::normal) {
    // Box and Muller, 1958. The added half keeps the logarithm finite.
    const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(first) + 0.5) * 0x1p-32));
    const double angle = 2.0 * std::numbers::pi * (static_cast<double>(second) * 0x1p-32);
    return convert<T>(low + rounded_mul(high * radius, std::cos(angle)));
  } else {
    const auto low_bound = static_cast<std::int64_t>(low);
    const auto span = static_cast<std::uint64_t>(static_cast<std::int64_t>(high) - low_bound);
    return convert<T>(low_bound + static_cast<std::int64_t>(bounded(first, second, span)));
  }
}

}  // namespace tandem::inline v0::kernels
