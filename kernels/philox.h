#pragma once

#include <array>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0::kernels {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): computes four 32-bit numbers
/// from a key and a counter, without state. The numbers are the same on every device.
[[gnu::always_inline]] TANDEM_HD inline std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                                                            std::uint64_t counter_low,
                                                                            std::uint64_t counter_high = 0) noexcept {
  std::uint32_t x0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t x1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t x2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t x3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * x0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * x2;
    x0 = static_cast<std::uint32_t>(p1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<std::uint32_t>(p1);
    x2 = static_cast<std::uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {x0, x1, x2, x3};
}

/// Maps to [0, 1) on a grid of 2^-24, which is exact in f32.
TANDEM_HD inline float uniform_f32(std::uint32_t bits) noexcept { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// Maps to [0, 1) on a grid of 2^-53.
TANDEM_HD inline double uniform_f64(std::uint32_t high, std::uint32_t low) noexcept {
  return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}
/// Maps to [0, bound) by multiplying a 64-bit draw and shifting; the bias is at most 2^-64.
TANDEM_HD inline std::uint64_t bounded(std::uint32_t high, std::uint32_t low, std::uint64_t bound) noexcept {
  const std::uint64_t draw = (std::uint64_t{high} << 32) | low;
  // The high 64 bits of the 128-bit product.
  const std::uint64_t low_part = (draw & 0xFFFFFFFFu) * (bound & 0xFFFFFFFFu) >> 32;
  const std::uint64_t mid1 = (draw >> 32) * (bound & 0xFFFFFFFFu) + low_part;
  const std::uint64_t mid2 = (draw & 0xFFFFFFFFu) * (bound >> 32) + (mid1 & 0xFFFFFFFFu);
  return (draw >> 32) * (bound >> 32) + (mid1 >> 32) + (mid2 >> 32);
}

}  // namespace tandem::inline v0::kernels
