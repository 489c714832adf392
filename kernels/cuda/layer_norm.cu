#include <tandem/kernels/layer_norm.h>

#include <algorithm>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/register_rows.h>
#include <tandem/kernels/norm_formulas.h>

// Layer norm. Floor: each element is read and written once, 2 * sizeof(T) bytes. Each row has a group of threads. Up to
// 4096 elements (f32; 8192 for 16-bit types) it stays in their registers, so that sums can take two passes, like on the
// CPU.

namespace tandem::inline v0::kernels {

namespace {

template <class T, int V, bool kKept>
__global__ void __launch_bounds__(RegisterRows::kThreads) normalise(LayerNorm kernel, RegisterRows rows) {
  using C = ComputeType<T>;
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  const auto sum_up = [&](TwoSums sums) { return group_reduce<RegisterRows::kThreads>(sums, rows.group, Plus()); };
  const auto count = static_cast<double>(rows.size);
  const int units = rows.units();
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * units; first_row < rows.rows;
       first_row += std::int64_t{gridDim.x} * units) {
    const std::int64_t row = first_row + static_cast<int>(threadIdx.x) / rows.group;
    const bool valid = row < rows.rows && rows.size > 0;
    // Groups without a row read the first one and write nothing, because all threads of a block must take part in the
    // sums.
    const T* in = static_cast<const T*>(kernel.in) + (valid ? row * rows.size : 0);
    const C first = rows.size > 0 ? C(in[0]) : C(0);
    const RowPacks<T, V, kKept> x(rows, in);

    // Distances from the first value keep their digits around a large mean, and make the variance of equal values 0.
    TwoSums apart;
    C sum = 0;
    for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
      const Pack<T, V> pack = x.at(i, k);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum += C(pack.values[v]) - first;
      }
      if constexpr (!kKept) {
        apart.a += static_cast<double>(sum);
        sum = 0;
      }
    });
    apart.a += static_cast<double>(sum);
    const C near = first + static_cast<C>(sum_up(apart).a / count);
    TwoSums rest;
    C distances = 0;
    C squares = 0;
    for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
      const Pack<T, V> pack = x.at(i, k);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C distance = C(pack.values[v]) - near;
        distances += distance;
        squares += distance * distance;
      }
      if constexpr (!kKept) {
        rest = rest + TwoSums{static_cast<double>(distances), static_cast<double>(squares)};
        distances = squares = 0;
      }
    });
    rest = sum_up(rest + TwoSums{static_cast<double>(distances), static_cast<double>(squares)});
    Moments moments;
    if (rows.size > 0) {
      moments = {count, static_cast<double>(near) + rest.a / count, std::max(rest.b - rest.a * rest.a / count, 0.0)};
    }
    const NormStatistics statistics = moments.statistics(kernel.eps);
    if (row < rows.rows && rows.lane() == 0) {
      kernel.statistics[row] = statistics;
    }
    if (!valid) {
      continue;
    }
    const Normaliser<C> n(statistics);
    T* out = static_cast<T*>(kernel.out) + row * rows.size;
    for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
      const Pack<T, V> pack = x.at(i, k);
      Pack<T, V> factors, shifts, result;
      if (weight != nullptr) {
        factors = load_pack<V>(weight + i * V, true);
      }
      if (bias != nullptr) {
        shifts = load_pack<V>(bias + i * V, true);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        C value = (C(pack.values[v]) - n.mean) * n.rstd + n.shift;
        value = weight != nullptr ? value * C(factors.values[v]) : value;
        value = bias != nullptr ? value + C(shifts.values[v]) : value;
        result.values[v] = T(value);
      }
      *reinterpret_cast<Pack<T, V>*>(out + i * V) = result;
    });
  }
}

template <class T, int V>
void forward(const Queue& queue, const LayerNorm& kernel) {
  const RegisterRows rows(queue, kernel.rows, kernel.size, V);
  queue.launch(LayerNorm::kName, queue.blocks_for(rows.rows, rows.units()), RegisterRows::kThreads, 0,
               rows.kept ? normalise<T, V, true> : normalise<T, V, false>, kernel, rows);
}

}  // namespace

void run(OnCuda, Context& context, const LayerNorm& kernel) {
  if (kernel.rows == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    constexpr int kWide = 16 / static_cast<int>(sizeof(T));
    const bool wide = kernel.size % kWide == 0 &&
                      alignment_of(static_cast<const T*>(kernel.in), static_cast<const T*>(kernel.weight),
                                   static_cast<const T*>(kernel.bias), static_cast<const T*>(kernel.out)) %
                              16 ==
                          0;
    wide ? forward<T, kWide>(queue, kernel) : forward<T, 1>(queue, kernel);
  });
}

}  // namespace tandem::inline v0::kernels
