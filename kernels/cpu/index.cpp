#include <tandem/kernels/index.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const IndexSelect& kernel) {
  const std::int64_t rows = kernel.inner_bytes > 0 ? kernel.outer * kernel.count : 0;
  const auto bytes = static_cast<std::size_t>(kernel.inner_bytes);
  constexpr std::int64_t kChunkBytes = 256 * 1024;
  const std::int64_t grain = 1 + kChunkBytes / (kernel.inner_bytes + 64);
  core::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t source = (row / kernel.count) * kernel.size + kernel.index[row % kernel.count];
      std::memcpy(static_cast<std::byte*>(kernel.out) + row * kernel.inner_bytes,
                  static_cast<const std::byte*>(kernel.in) + source * kernel.inner_bytes, bytes);
    }
  });
}

void run(OnCpu, Context&, const IndexAdd& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      // Adds in index order: the sum of repeated indices must not depend on timing.
      for (std::int64_t o = 0; o < kernel.outer; ++o) {
        for (std::int64_t i = 0; i < kernel.count; ++i) {
          if (kernel.index[i] == kernel.skip) {
            continue;
          }
          T* out = static_cast<T*>(kernel.out) + (o * kernel.size + kernel.index[i]) * kernel.inner;
          const T* in = static_cast<const T*>(kernel.in) + (o * kernel.count + i) * kernel.inner;
          for (std::int64_t k = 0; k < kernel.inner; ++k) {
            out[k] = wrapping_add(out[k], in[k]);
          }
        }
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels
