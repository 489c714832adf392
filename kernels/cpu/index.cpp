#include <tandem/kernels/index.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

// Rows are anywhere in memory, where the processor does not expect them: they are asked for so many rows ahead.
constexpr std::int64_t kRowsAhead = 2;

void fetch(const void* row, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kMost = 4096;  // of longer rows the processor itself fetches the rest
  for (std::int64_t at = 0; at < std::min(bytes, kMost); at += kLine) {
    __builtin_prefetch(static_cast<const std::byte*>(row) + at);
  }
}

}  // namespace

void run(OnCpu, Context&, const IndexSelect& kernel) {
  const std::int64_t rows = kernel.inner_bytes > 0 ? kernel.outer * kernel.count : 0;
  const auto bytes = static_cast<std::size_t>(kernel.inner_bytes);
  constexpr std::int64_t kChunkBytes = 256 * 1024;
  const std::int64_t grain = 1 + kChunkBytes / (kernel.inner_bytes + 64);
  core::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto source = [&](std::int64_t row) {
      const std::int64_t of = (row / kernel.count) * kernel.size + kernel.index[row % kernel.count];
      return static_cast<const std::byte*>(kernel.in) + of * kernel.inner_bytes;
    };
    for (std::int64_t row = begin; row < end; ++row) {
      if (row + kRowsAhead < end) {
        fetch(source(row + kRowsAhead), kernel.inner_bytes);
      }
      std::memcpy(static_cast<std::byte*>(kernel.out) + row * kernel.inner_bytes, source(row), bytes);
    }
  });
}

void run(OnCpu, Context&, const IndexAdd& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      // Adds in index order: the sum of repeated indices must not depend on timing.
      const std::int64_t inner = kernel.inner;
      for (std::int64_t o = 0; o < kernel.outer; ++o) {
        for (std::int64_t i = 0; i < kernel.count; ++i) {
          if (kernel.index[i] == kernel.skip) {
            continue;
          }
          if (i + kRowsAhead < kernel.count && kernel.index[i + kRowsAhead] != kernel.skip) {
            fetch(static_cast<const T*>(kernel.out) + (o * kernel.size + kernel.index[i + kRowsAhead]) * kernel.inner,
                  kernel.inner * static_cast<std::int64_t>(sizeof(T)));
          }
          T* out = static_cast<T*>(kernel.out) + (o * kernel.size + kernel.index[i]) * kernel.inner;
          const T* in = static_cast<const T*>(kernel.in) + (o * kernel.count + i) * kernel.inner;
          if constexpr (is_16_bit<T>) {
            cpu::add_rounded(out, in, inner);
          } else {
#pragma GCC ivdep
            for (std::int64_t k = 0; k < inner; ++k) {
              out[k] = wrapping_add(out[k], in[k]);
            }
          }
        }
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels
