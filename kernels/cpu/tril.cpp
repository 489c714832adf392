#include <tandem/kernels/tril.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kChunk = 32768;  // elements per chunk

template <class T>
void tril(const Tril& kernel) {
  const std::int64_t columns = kernel.columns;
  core::parallel_for(kernel.outer * kernel.rows, 1 + kChunk / (columns + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* in = static_cast<const T*>(kernel.in) + row * columns;
      T* out = static_cast<T*>(kernel.out) + row * columns;
      const std::int64_t kept = std::clamp<std::int64_t>(row % kernel.rows + kernel.diagonal + 1, 0, columns);
      if constexpr (!std::is_integral_v<T>) {
        if (kernel.accumulate == Accumulate::yes) {
          for (std::int64_t j = 0; j < kept; ++j) {
            out[j] = T(wrapping_add<ComputeType<T>>(out[j], in[j]));
          }
          continue;
        }
      }
      std::copy(in, in + kept, out);
      std::fill(out + kept, out + columns, T(0));
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const Tril& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() { tril<T>(kernel); });
}

}  // namespace tandem::inline v0::kernels
