#include <tandem/kernels/matmul.h>

#include <algorithm>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/eigen_product.h>

namespace tandem::inline v0::kernels {

namespace {

// Below this many multiply-adds plain loops beat the packing of a blocked product.
constexpr std::int64_t kSmall = 4096;
// One chunk of output, about 0.4 Mflop at the least: below it two threads are no faster than one.
constexpr std::int64_t kChunkWork = 200'000;
constexpr std::int64_t kRowStep = 16;

template <class T>
void small(const Matmul& kernel) {
  const T* a = static_cast<const T*>(kernel.a.data);
  const T* b = static_cast<const T*>(kernel.b.data);
  const T* bias = static_cast<const T*>(kernel.bias);
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    T* out = static_cast<T*>(kernel.out) + i * kernel.out_stride;
    const T* a_row = a + i * kernel.a.row_stride;
    for (std::int64_t j = 0; j < kernel.n; ++j) {
      const T* b_col = b + j * kernel.b.col_stride;
      T sums[4] = {};  // four chains: an addition's latency is four of its throughput
      std::int64_t k = 0;
      for (; k + 4 <= kernel.k; k += 4) {
        for (int lane = 0; lane < 4; ++lane) {
          sums[lane] += a_row[(k + lane) * kernel.a.col_stride] * b_col[(k + lane) * kernel.b.row_stride];
        }
      }
      for (; k < kernel.k; ++k) {
        sums[0] += a_row[k * kernel.a.col_stride] * b_col[k * kernel.b.row_stride];
      }
      T value = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      value += kernel.accumulate == Accumulate::yes ? out[j] : T(0);
      value += bias != nullptr ? bias[j] : T(0);
      out[j] = kernel.relu && value < T(0) ? T(0) : value;
    }
  }
}

// The cut depends on the sizes alone. The longer side is cut, so that each chunk packs little more than its share.
template <class T>
void blocked(const Matmul& kernel) {
  const std::int64_t work = std::max<std::int64_t>(1, kernel.m * kernel.n * std::max<std::int64_t>(1, kernel.k));
  const std::int64_t chunks = std::clamp<std::int64_t>(work / kChunkWork, 1, 16);
  const bool by_rows = kernel.m >= kernel.n;
  const std::int64_t total = by_rows ? kernel.m : kernel.n;
  const std::int64_t grain = ((total + chunks - 1) / chunks + kRowStep - 1) / kRowStep * kRowStep;
  core::parallel_for(total, grain, [&](std::int64_t begin, std::int64_t end) {
    if (by_rows) {
      cpu::eigen_product(T(), kernel, {begin, end - begin, 0, kernel.n});
    } else {
      cpu::eigen_product(T(), kernel, {0, kernel.m, begin, end - begin});
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const Matmul& kernel) {
  core::dispatch_floating(kernel.dtype, "matmul", [&]<class T>() {
    if (kernel.m * kernel.n * kernel.k <= kSmall) {
      small<T>(kernel);
    } else {
      blocked<T>(kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
