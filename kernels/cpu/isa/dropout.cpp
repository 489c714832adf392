#include <tandem/kernels/cpu/dropout_rows.h>
#include <tandem/kernels/cpu/isa/philox_numbers.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Avoids a branch, which would be taken at random.
TANDEM_SIMD float kept(float value, std::uint8_t mask) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  bits &= 0U - mask;
  __builtin_memcpy(&value, &bits, sizeof bits);
  return value;
}

}  // namespace

void keep_mask(const KeepMask& row) {
  alignas(64) std::uint32_t numbers[kPhiloxNumbers];
  const std::uint32_t threshold = row.threshold;
  for (std::int64_t i = 0; i < row.count; i += kPhiloxNumbers) {
    draw_numbers(numbers, row.key, row.counter + static_cast<std::uint64_t>(i / 4));
    std::uint8_t* mask = row.mask + i;
    if (row.count - i >= kPhiloxNumbers) {
      for (int k = 0; k < kPhiloxNumbers; ++k) {
        mask[k] = numbers[k] >> 8 >= threshold ? 1 : 0;
      }
    } else {
      for (std::int64_t k = 0; k < row.count - i; ++k) {
        mask[k] = numbers[k] >> 8 >= threshold ? 1 : 0;
      }
    }
  }
}

void masked_scale_f32(const MaskedScale& row) {
  const float* in = row.in;
  float* out = row.out;
  const std::uint8_t* mask = row.mask;
  const float scale = row.scale;
  if (row.accumulate == Accumulate::yes) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < row.count; ++i) {
      out[i] = out[i] + kept(in[i] * scale, mask[i]);
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < row.count; ++i) {
      out[i] = kept(in[i] * scale, mask[i]);
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
