#include <utility>

#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/cpu/pool_rows.h>

// The pooling of most nets: windows of two by two, one after the other. An output's four elements are in four vectors,
// of even and odd elements of two rows.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// The even elements of 2 * kLanes, and the odd ones.
struct Halves {
  Vec even, odd;
};

// Numbers of lanes are constants here. Those of the second vector follow those of the first.
template <int... lane>
TANDEM_SIMD Halves take_apart(Vec a, Vec b, std::integer_sequence<int, lane...>) {
  return {__builtin_shufflevector(a, b, (2 * lane)...), __builtin_shufflevector(a, b, (2 * lane + 1)...)};
}
template <int half, int... lane>
TANDEM_SIMD Vec in_turns(Vec even, Vec odd, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(even, odd, ((lane + half * kLanes) / 2 + lane % 2 * kLanes)...);
}
using Lanes = std::make_integer_sequence<int, kLanes>;

// The halves have `count` elements each. No others are read or written.
TANDEM_SIMD Halves halves_of(const float* from, std::int64_t count) {
  if (count >= kLanes) {
    return take_apart(load(from), load(from + kLanes), Lanes());
  }
  return take_apart(load(from, first(2 * count)), load(from + kLanes, first(2 * count - kLanes)), Lanes());
}
TANDEM_SIMD void join_halves(Vec even, Vec odd, float* to, std::int64_t count) {
  store(to, in_turns<0>(even, odd, Lanes()), first(2 * count));
  store(to + kLanes, in_turns<1>(even, odd, Lanes()), first(2 * count - kLanes));
}

struct Largest {
  Vec value;
  Bits place;

  TANDEM_SIMD void take(Vec v, Bits at) {
    const Bits takes = (v > value) | (v != v);
    value = takes ? v : value;
    place = takes ? at : place;
  }
};

}  // namespace

void max_of_halves_f32(const HalvedRows& rows, const float* upper, const float* lower, float* out,
                       std::int32_t* places) {
  for (std::int64_t x = 0; x < rows.count; x += kLanes) {
    const Halves above = halves_of(upper + 2 * x, rows.count - x);
    const Halves below = halves_of(lower + 2 * x, rows.count - x);
    const Bits place = lane_numbers() * 2 + (rows.place + static_cast<std::int32_t>(2 * x));
    Largest largest{above.even, place};
    largest.take(above.odd, place + 1);
    largest.take(below.even, place + rows.width);
    largest.take(below.odd, place + rows.width + 1);
    const Mask lanes = first(rows.count - x);
    store(out + x, largest.value, lanes);
    store(places + x, largest.place, lanes);
  }
}

void max_of_halves_grad_f32(const HalvedRows& rows, const float* grad, const std::int32_t* places, float* upper,
                            float* lower) {
  const Vec zero = broadcast(0);
  for (std::int64_t x = 0; x < rows.count; x += kLanes) {
    const std::int64_t count = rows.count - x;
    const Vec g = load(grad + x, first(count));
    const Bits chosen =
        load(places + x, first(count)) - (lane_numbers() * 2 + (rows.place + static_cast<std::int32_t>(2 * x)));
    join_halves(chosen == 0 ? g : zero, chosen == 1 ? g : zero, upper + 2 * x, count);
    join_halves(chosen == rows.width ? g : zero, chosen == rows.width + 1 ? g : zero, lower + 2 * x, count);
  }
}

// As in the loops for all windows, sums begin with 0, which is not seen but for the sign of a 0.
void mean_of_halves_f32(std::int64_t count, float divisor, const float* upper, const float* lower, float* out) {
  for (std::int64_t x = 0; x < count; x += kLanes) {
    const Halves above = halves_of(upper + 2 * x, count - x);
    const Halves below = halves_of(lower + 2 * x, count - x);
    const Vec sum = broadcast(0) + above.even + above.odd + below.even + below.odd;
    store(out + x, sum / broadcast(divisor), first(count - x));
  }
}

void mean_of_halves_grad_f32(std::int64_t count, float divisor, const float* grad, float* upper, float* lower) {
  for (std::int64_t x = 0; x < count; x += kLanes) {
    const Vec part = broadcast(0) + load(grad + x, first(count - x)) / broadcast(divisor);
    join_halves(part, part, upper + 2 * x, count - x);
    join_halves(part, part, lower + 2 * x, count - x);
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
