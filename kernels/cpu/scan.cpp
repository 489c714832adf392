#include <tandem/kernels/scan.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kScanChunk = 32768;  // elements per chunk
constexpr std::int64_t kColumns = 1024;     // sums that run side by side, so that memory is read in order

// Runs along at most kColumns columns, side by side.
template <class T, class Out, class Total, bool kAccumulate>
void run_columns(const T* in, Out* out, std::int64_t size, std::int64_t stride, std::int64_t width) {
  Total totals[kColumns];
  std::fill_n(totals, width, Total(0));
  for (std::int64_t i = 0; i < size; ++i, in += stride, out += stride) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < width; ++c) {
      totals[c] = wrapping_add(totals[c], static_cast<Total>(in[c]));
      const auto value = static_cast<ComputeType<Out>>(totals[c]);
      out[c] = Out(kAccumulate ? wrapping_add<ComputeType<Out>>(out[c], value) : value);
    }
  }
}

// Runs along kRows rows at once: one sum alone waits for each of its additions.
template <class T, class Out, class Total, bool kAccumulate, int kRows>
void run_rows(const T* in, Out* out, std::int64_t size, std::int64_t step, std::int64_t row_stride) {
  Total totals[kRows] = {};
  for (std::int64_t i = 0; i < size; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t at = r * row_stride + i * step;
      totals[r] = wrapping_add(totals[r], static_cast<Total>(in[at]));
      const auto value = static_cast<ComputeType<Out>>(totals[r]);
      out[at] = Out(kAccumulate ? wrapping_add<ComputeType<Out>>(out[at], value) : value);
    }
  }
}

template <class T, bool kAccumulate>
void cumsum(const CumSum& kernel) {
  using Total = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  using Out = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  if (kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const auto* const first_in = static_cast<const T*>(kernel.in);
  auto* const first_out = static_cast<Out*>(kernel.out);
  const std::int64_t step = kernel.reverse ? -kernel.inner : kernel.inner;
  const std::int64_t start = kernel.reverse ? (kernel.size - 1) * kernel.inner : 0;
  if (kernel.inner == 1) {
    core::parallel_for(kernel.outer, 1 + kScanChunk / (kernel.size + 1), [&](std::int64_t begin, std::int64_t end) {
      constexpr int kRows = 8;
      std::int64_t row = begin;
      for (; row + kRows <= end; row += kRows) {
        const std::int64_t at = row * kernel.size + start;
        run_rows<T, Out, Total, kAccumulate, kRows>(first_in + at, first_out + at, kernel.size, step, kernel.size);
      }
      for (; row < end; ++row) {
        const std::int64_t at = row * kernel.size + start;
        run_rows<T, Out, Total, kAccumulate, 1>(first_in + at, first_out + at, kernel.size, step, kernel.size);
      }
    });
    return;
  }
  // Blocks are narrower where some threads would otherwise have nothing to do.
  const std::int64_t share = kernel.outer * kernel.inner / num_threads();
  const std::int64_t columns = std::clamp(share, std::min(std::int64_t{64}, kernel.inner), kColumns);
  const std::int64_t blocks = (kernel.inner + columns - 1) / columns;
  const std::int64_t work = kernel.size * std::min(kernel.inner, columns);
  core::parallel_for(kernel.outer * blocks, 1 + kScanChunk / (work + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t column = block % blocks * columns;
      const std::int64_t width = std::min(columns, kernel.inner - column);
      const std::int64_t at = block / blocks * kernel.size * kernel.inner + start + column;
      run_columns<T, Out, Total, kAccumulate>(first_in + at, first_out + at, kernel.size, step, width);
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const CumSum& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    kernel.accumulate == Accumulate::yes ? cumsum<T, true>(kernel) : cumsum<T, false>(kernel);
  });
}

}  // namespace tandem::inline v0::kernels
