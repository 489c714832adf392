#include <tandem/kernels/random.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/random_rows.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kRandomChunk = 8192;  // elements; even, so that no two chunks share a block
constexpr std::int64_t kRow = 512;           // elements whose numbers are drawn first; they stay in the cache

// Whether the number is 0 or in f32's normal range.
bool is_f32(double value) {
  using Limits = std::numeric_limits<float>;
  return value == 0 || (std::abs(value) >= Limits::min() && std::abs(value) <= Limits::max());
}

template <Distribution distribution, class T>
void draw_row(const RandomFill& kernel, T* out, const std::uint32_t* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = draw<distribution, T>(kernel.low, kernel.high, numbers[2 * i], numbers[2 * i + 1]);
  }
}

template <Distribution distribution, class T>
void fill_row(const RandomFill& kernel, T* out, const std::uint32_t* numbers, std::int64_t count) {
  constexpr bool kIsNormal = distribution == Distribution::normal;
  if constexpr (kIsNormal && std::is_same_v<T, float>) {
    if (!is_f32(kernel.low) || !is_f32(kernel.high)) {
      return draw_row<distribution>(kernel, out, numbers, count);
    }
    TANDEM_BY_ISA(normal_row)(out, numbers, count, static_cast<float>(kernel.low), static_cast<float>(kernel.high));
  } else if constexpr (kIsNormal && is_16_bit<T>) {
    float wide[kRow];
    fill_row<distribution, float>(kernel, wide, numbers, count);
    cpu::narrow(out, wide, count);
  } else {
    draw_row<distribution>(kernel, out, numbers, count);
  }
}

template <Distribution distribution, class T>
void fill_random(const RandomFill& kernel) {
  T* out = static_cast<T*>(kernel.out);
  const std::uint64_t base = kernel.state->random_offset + kernel.offset;
  core::parallel_for(kernel.count, kRandomChunk, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t numbers[2 * kRow];
    for (std::int64_t i = begin; i < end; i += kRow) {
      const std::int64_t count = std::min(kRow, end - i);
      TANDEM_BY_ISA(philox_numbers)(numbers, 2 * count, kernel.seed, base + static_cast<std::uint64_t>(i / 2));
      fill_row<distribution>(kernel, out + i, numbers, count);
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const RandomFill& kernel) {
  switch (kernel.distribution) {
    case Distribution::uniform:
      return core::dispatch_floating(kernel.dtype, "uniform numbers",
                                     [&]<class T>() { fill_random<Distribution::uniform, T>(kernel); });
    case Distribution::normal:
      return core::dispatch_floating(kernel.dtype, "normal numbers",
                                     [&]<class T>() { fill_random<Distribution::normal, T>(kernel); });
    case Distribution::integer:
      return core::dispatch_any(kernel.dtype, [&]<class T>() { fill_random<Distribution::integer, T>(kernel); });
  }
}

}  // namespace tandem::inline v0::kernels
