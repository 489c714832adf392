#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/step_state.h>

namespace tandem::inline v0::kernels {

enum class Distribution : std::uint8_t {
  uniform,  // floating point, [low, high)
  normal,   // floating point, mean low, standard deviation high
  integer   // any type, [low, high)
};

/// Fills `count` dense elements. Element i takes half (two of four numbers) of the Philox block state->random_offset +
/// offset + i / 2 under key `seed`, whatever the dtype. Draws therefore don't depend on threads. They agree between
/// devices and instruction sets, but for the last digits of normal numbers. A fill uses (count + 1) / 2 blocks.
struct RandomFill {
  static constexpr const char* kName = "random_fill";
  Distribution distribution;
  DType dtype;
  void* out;
  std::int64_t count;
  double low, high;
  std::uint64_t seed;
  std::uint64_t offset;
  const StepState* state;
};
void run(OnCpu, Context& context, const RandomFill& kernel);
void run(OnCuda, Context& context, const RandomFill& kernel);

/// The cosine of an angle in turns. A GPU's std::cos would reduce huge angles, which takes memory for each thread.
TANDEM_HD inline double cos_of_turns(double turns) noexcept {
#if defined(__CUDA_ARCH__)
  return cospi(2.0 * turns);
#else
  return std::cos(2.0 * std::numbers::pi * turns);
#endif
}

/// The element of a RandomFill from its two numbers. The last bits of the logarithm and the cosine may differ: a GPU's,
/// and those of f32 and 16-bit types on CPUs (cpu/random_rows.h). Everything else agrees.
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
    return convert<T>(low + rounded_mul(high * radius, cos_of_turns(static_cast<double>(second) * 0x1p-32)));
  } else {
    const auto low_bound = static_cast<std::int64_t>(low);
    const auto span = static_cast<std::uint64_t>(static_cast<std::int64_t>(high) - low_bound);
    return convert<T>(low_bound + static_cast<std::int64_t>(bounded(first, second, span)));
  }
}

}  // namespace tandem::inline v0::kernels
