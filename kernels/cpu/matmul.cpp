#include <tandem/kernels/matmul.h>

#include <algorithm>
#include <type_traits>

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
T finish(const Matmul& kernel, T value, const T& old, std::int64_t column) {
  value += kernel.accumulate == Accumulate::yes ? old : T(0);
  value += kernel.bias != nullptr ? static_cast<const T*>(kernel.bias)[column] : T(0);
  return kernel.relu && value < T(0) ? T(0) : value;
}

// Each output is a dot product. Four sums at once: an addition's latency is four of its throughput.
template <class T, class StrideA, class StrideB>
void small_dots(const Matmul& kernel, StrideA a_stride, StrideB b_stride) {
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    T* out = static_cast<T*>(kernel.out) + i * kernel.out_stride;
    const T* a = static_cast<const T*>(kernel.a.data) + i * kernel.a.row_stride;
    for (std::int64_t j = 0; j < kernel.n; ++j) {
      const T* b = static_cast<const T*>(kernel.b.data) + j * kernel.b.col_stride;
      T sums[4] = {};
      std::int64_t k = 0;
      for (; k + 4 <= kernel.k; k += 4) {
        for (int lane = 0; lane < 4; ++lane) {
          sums[lane] += a[(k + lane) * a_stride] * b[(k + lane) * b_stride];
        }
      }
      for (; k < kernel.k; ++k) {
        sums[0] += a[k * a_stride] * b[k * b_stride];
      }
      out[j] = finish(kernel, (sums[0] + sums[1]) + (sums[2] + sums[3]), out[j], j);
    }
  }
}

// Rows of b are dense: a row of outputs is a sum of them.
template <class T>
void small_rows(const Matmul& kernel) {
  constexpr std::int64_t kWidth = 64;  // columns whose sums stay in L1
  for (std::int64_t i = 0; i < kernel.m; ++i) {
    const T* a = static_cast<const T*>(kernel.a.data) + i * kernel.a.row_stride;
    for (std::int64_t first = 0; first < kernel.n; first += kWidth) {
      const std::int64_t width = std::min(kWidth, kernel.n - first);
      T sums[kWidth] = {};
      for (std::int64_t k = 0; k < kernel.k; ++k) {
        const T factor = a[k * kernel.a.col_stride];
        const T* b = static_cast<const T*>(kernel.b.data) + k * kernel.b.row_stride + first;
        for (std::int64_t j = 0; j < width; ++j) {
          sums[j] += factor * b[j];
        }
      }
      T* out = static_cast<T*>(kernel.out) + i * kernel.out_stride + first;
      for (std::int64_t j = 0; j < width; ++j) {
        out[j] = finish(kernel, sums[j], out[j], first + j);
      }
    }
  }
}

template <class T>
void small(const Matmul& kernel) {
  constexpr std::integral_constant<std::int64_t, 1> one;
  if (kernel.a.col_stride == 1 && kernel.b.row_stride == 1) {
    small_dots<T>(kernel, one, one);
  } else if (kernel.b.col_stride == 1 && kernel.n > 1) {
    small_rows<T>(kernel);
  } else {
    small_dots<T>(kernel, kernel.a.col_stride, kernel.b.row_stride);
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
