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
template <int... lane>
TANDEM_SIMD void join(Vec even, Vec odd, float* to, std::integer_sequence<int, lane...>) {
  store(to, __builtin_shufflevector(even, odd, (lane / 2 + lane % 2 * kLanes)...));
  store(to + kLanes, __builtin_shufflevector(even, odd, ((lane + kLanes) / 2 + lane % 2 * kLanes)...));
}

TANDEM_SIMD Halves halves_of(const float* from) {
  return take_apart(load(from), load(from + kLanes), std::make_integer_sequence<int, kLanes>());
}
TANDEM_SIMD void join_halves(Vec even, Vec odd, float* to) {
  join(even, odd, to, std::make_integer_sequence<int, kLanes>());
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
  const auto take = [&](std::int64_t x, const Halves& above, const Halves& below) {
    const Bits first = lane_numbers() * 2 + (rows.place + static_cast<std::int32_t>(2 * x));
    Largest largest{above.even, first};
    largest.take(above.odd, first + 1);
    largest.take(below.even, first + rows.width);
    largest.take(below.odd, first + rows.width + 1);
    return largest;
  };
  std::int64_t x = 0;
  for (; x + kLanes <= rows.count; x += kLanes) {
    const Largest largest = take(x, halves_of(upper + 2 * x), halves_of(lower + 2 * x));
    store(out + x, largest.value);
    __builtin_memcpy(places + x, &largest.place, sizeof(Bits));
  }
  if (x < rows.count) {
    // The rest, by way of whole vectors.
    alignas(64) float above[2 * kLanes] = {};
    alignas(64) float below[2 * kLanes] = {};
    const std::int64_t rest = rows.count - x;
    for (std::int64_t i = 0; i < 2 * rest; ++i) {
      above[i] = upper[2 * x + i];
      below[i] = lower[2 * x + i];
    }
    const Largest largest = take(x, halves_of(above), halves_of(below));
    store(out + x, largest.value, first(rest));
    for (std::int64_t i = 0; i < rest; ++i) {
      places[x + i] = largest.place[i];
    }
  }
}

void max_of_halves_grad_f32(const HalvedRows& rows, const float* grad, const std::int32_t* places, float* upper,
                            float* lower) {
  const auto give = [&](std::int64_t x, Vec g, Bits place, float* above, float* below) {
    const Bits chosen = place - (lane_numbers() * 2 + (rows.place + static_cast<std::int32_t>(2 * x)));
    const Vec zero = broadcast(0);
    join_halves(chosen == 0 ? g : zero, chosen == 1 ? g : zero, above);
    join_halves(chosen == rows.width ? g : zero, chosen == rows.width + 1 ? g : zero, below);
  };
  std::int64_t x = 0;
  for (; x + kLanes <= rows.count; x += kLanes) {
    Bits place;
    __builtin_memcpy(&place, places + x, sizeof(Bits));
    give(x, load(grad + x), place, upper + 2 * x, lower + 2 * x);
  }
  if (x < rows.count) {
    const std::int64_t rest = rows.count - x;
    alignas(64) float above[2 * kLanes];
    alignas(64) float below[2 * kLanes];
    Bits place{};
    for (std::int64_t i = 0; i < rest; ++i) {
      place[i] = places[x + i];
    }
    give(x, load(grad + x, first(rest)), place, above, below);
    for (std::int64_t i = 0; i < 2 * rest; ++i) {
      upper[2 * x + i] = above[i];
      lower[2 * x + i] = below[i];
    }
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
