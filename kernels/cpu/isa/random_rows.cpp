#include <tandem/kernels/cpu/isa/philox_numbers.h>
#include <tandem/kernels/cpu/isa/vector_math.h>
#include <tandem/kernels/cpu/random_rows.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// log((first + 1/2) / 2^32). Above 1/2 the distance from 1 is the exact number, so that small logarithms keep their
// digits.
TANDEM_SIMD Vec log_of_number(Bits first) {
  const Vec one = broadcast(1);
  const auto is_upper = first < 0;
  const Vec distance = (to_floats(is_upper ? ~first : first) + broadcast(0.5F)) * broadcast(0x1p-32F);
  LogParts parts = log_parts(is_upper ? one - distance : distance);
  const Vec scale = power_of_minus(parts.exponent);
  parts.t = is_upper ? fma(-distance, scale, scale - one) : parts.t;
  return log_of(parts);
}

// The cosine of an angle of second / 2^32 turns.
TANDEM_SIMD Vec cos_of_number(Bits second) {
  const Bits quarter = (second + (1 << 29)) >> 30;
  const Vec r = to_floats(second - (quarter << 30)) * broadcast(1.46291808e-9F);  // 2 pi / 2^32
  return sin_of_parts({r, quarter + 1});
}

}  // namespace

void philox_numbers(std::uint32_t* out, std::int64_t count, std::uint64_t key, std::uint64_t counter) {
  std::int64_t i = 0;
  for (; i + kPhiloxNumbers <= count; i += kPhiloxNumbers) {
    draw_numbers(out + i, key, counter + static_cast<std::uint64_t>(i / 4));
  }
  if (i < count) {
    std::uint32_t last[kPhiloxNumbers];
    draw_numbers(last, key, counter + static_cast<std::uint64_t>(i / 4));
    __builtin_memcpy(out + i, last, static_cast<std::size_t>(count - i) * sizeof *out);
  }
}

void normal_row(float* out, const std::uint32_t* numbers, std::int64_t count, float mean, float deviation) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    // The row ends within a register: what follows the numbers is not read.
    const auto* pairs = reinterpret_cast<const std::int32_t*>(numbers + 2 * i);
    const Bits low = load(pairs, first(2 * (count - i)));
    const Bits high = load(pairs + kLanes, first(2 * (count - i) - kLanes));
    const Vec radius = sqrt(broadcast(-2) * log_of_number(every_second_lane<0>(low, high)));
    const Vec value =
        fma(broadcast(deviation) * radius, cos_of_number(every_second_lane<1>(low, high)), broadcast(mean));
    store(out + i, value, first(count - i));
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
