#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels::cpu {

/// Writes mask[i] = 1 if number i % 4 of Philox block counter + i / 4 under `key`, without its lowest 8 bits, is at
/// least `threshold`, else 0.
struct KeepMask {
  std::uint8_t* mask;
  std::int64_t count;
  std::uint64_t key, counter;
  std::uint32_t threshold;
};

/// Writes out (+)= mask ? in * scale : 0.
struct MaskedScale {
  const float* in;
  const std::uint8_t* mask;  // 0 or 1
  float* out;
  std::int64_t count;
  float scale;
  Accumulate accumulate;
};

TANDEM_FOR_EACH_ISA(void keep_mask(const KeepMask& row); void masked_scale_f32(const MaskedScale& row);)

}  // namespace tandem::inline v0::kernels::cpu
