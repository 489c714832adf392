#include <tandem/kernels/random.h>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kRandomChunk = 8192;  // elements; even, so that no two chunks share a block

template <Distribution distribution, class T>
void fill_random(const RandomFill& kernel) {
  T* out = static_cast<T*>(kernel.out);
  const std::uint64_t base = kernel.state->random_offset + kernel.offset;
  core::parallel_for(kernel.count, kRandomChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += 2) {
      const auto block = philox(kernel.seed, base + static_cast<std::uint64_t>(i / 2));
      out[i] = draw<distribution, T>(kernel.low, kernel.high, block[0], block[1]);
      if (i + 1 < end) {
        out[i + 1] = draw<distribution, T>(kernel.low, kernel.high, block[2], block[3]);
      }
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
