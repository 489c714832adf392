#include <tandem/kernels/scan.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kScanChunk = 32768;  // elements per chunk
constexpr std::int64_t kColumns = 64;       // sums that run side by side, so that memory is read in order

template <class T>
void cumsum(const CumSum& kernel) {
  using Total = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  using Out = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  const std::int64_t blocks = (kernel.inner + kColumns - 1) / kColumns;
  const std::int64_t work = kernel.size * std::min(kernel.inner, kColumns);
  core::parallel_for(kernel.outer * blocks, 1 + kScanChunk / (work + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t column = block % blocks * kColumns;
      const std::int64_t width = std::min(kColumns, kernel.inner - column);
      Total totals[kColumns] = {};
      for (std::int64_t i = 0; i < kernel.size; ++i) {
        const std::int64_t row = block / blocks * kernel.size + (kernel.reverse ? kernel.size - 1 - i : i);
        const T* in = static_cast<const T*>(kernel.in) + row * kernel.inner + column;
        Out* out = static_cast<Out*>(kernel.out) + row * kernel.inner + column;
        for (std::int64_t c = 0; c < width; ++c) {
          totals[c] = wrapping_add(totals[c], static_cast<Total>(in[c]));
          const auto value = static_cast<ComputeType<Out>>(totals[c]);
          out[c] = Out(kernel.accumulate == Accumulate::yes ? wrapping_add<ComputeType<Out>>(out[c], value) : value);
        }
      }
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const CumSum& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() { cumsum<T>(kernel); });
}

}  // namespace tandem::inline v0::kernels
