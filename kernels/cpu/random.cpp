#include <tandem/kernels/random.h>

#include <cmath>
#include <numbers>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/philox.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kChunk = 8192;  // elements; even, so that a block is never shared by two chunks

template <class T>
T draw(const RandomFill& kernel, std::uint32_t high, std::uint32_t low) {
  switch (kernel.distribution) {
    case Distribution::uniform: {
      using C = ComputeType<T>;
      const C span = static_cast<C>(kernel.high - kernel.low);
      C unit;
      if constexpr (std::is_same_v<C, float>) {
        unit = uniform_f32(high);
      } else {
        unit = static_cast<C>(uniform_f64(high, low));
      }
      const T value = T(static_cast<C>(kernel.low) + span * unit);
      // Rounding may reach the excluded end.
      return C(value) < static_cast<C>(kernel.high) || span <= C(0) ? value : convert<T>(kernel.low);
    }
    case Distribution::normal: {
      // Box and Muller, 1958; the half keeps the logarithm finite.
      const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(high) + 0.5) * 0x1p-32));
      const double angle = 2.0 * std::numbers::pi * (static_cast<double>(low) * 0x1p-32);
      return convert<T>(kernel.low + kernel.high * radius * std::cos(angle));
    }
    case Distribution::integer: {
      const auto low_bound = static_cast<std::int64_t>(kernel.low);
      const auto span = static_cast<std::uint64_t>(static_cast<std::int64_t>(kernel.high) - low_bound);
      return convert<T>(low_bound + static_cast<std::int64_t>(bounded(high, low, span)));
    }
  }
  __builtin_unreachable();
}

}  // namespace

void run(OnCpu, Context&, const RandomFill& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    T* out = static_cast<T*>(kernel.out);
    const std::uint64_t base = kernel.state->random_offset + kernel.offset;
    core::parallel_for(kernel.count, kChunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += 2) {
        const auto block = philox(kernel.seed, base + static_cast<std::uint64_t>(i / 2));
        out[i] = draw<T>(kernel, block[0], block[1]);
        if (i + 1 < end) {
          out[i + 1] = draw<T>(kernel, block[2], block[3]);
        }
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
