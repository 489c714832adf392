#include <tandem/kernels/layer_norm.h>

#include <cmath>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/register_rows.h>
#include <tandem/kernels/norm_formulas.h>

// Layer norm. Floor: each element is read and written once, 2 * sizeof(T) bytes. Each row has a group of threads. Up to
// 4096 elements (f32; 8192 for 16-bit types) it stays in their registers. Each thread finds the mean and the squares of
// its elements in two passes over its registers; one reduction joins them. All of that is done in the type that T
// computes in, on distances from the row's first element, so close values around a large mean keep their digits.

namespace tandem::inline v0::kernels {

namespace {

using Rows = RegisterRows<256, 4>;

template <class T, int V, bool kKept>
__global__ void __launch_bounds__(Rows::kThreads, sizeof(T) == 8 ? 2 : 4) normalise(LayerNorm kernel, Rows rows) {
  using C = ComputeType<T>;
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  const int units = rows.units();
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * units; first_row < rows.rows;
       first_row += std::int64_t{gridDim.x} * units) {
    const std::int64_t row = first_row + static_cast<int>(threadIdx.x) / rows.group;
    const bool valid = row < rows.rows && rows.size > 0;
    // Groups without a row read the first one and write nothing, because all threads of a block must take part in the
    // reduction.
    const T* in = static_cast<const T*>(kernel.in) + (valid ? row * rows.size : 0);
    const C first = rows.size > 0 ? C(in[0]) : C(0);
    const RowPacks<Rows, T, V, kKept> x(rows, in);

    Moments<C> mine;
    if constexpr (kKept) {
      for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
        const Pack<T, V> pack = x.at(i, k);
        mine.count += V;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          mine.mean += C(pack.values[v]) - first;
        }
      });
      mine.mean = mine.count > C(0) ? quotient(mine.mean, mine.count) : C(0);
      for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
        const Pack<T, V> pack = x.at(i, k);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const C distance = C(pack.values[v]) - first - mine.mean;
          mine.squares += distance * distance;
        }
      });
    } else {
      for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
        const Pack<T, V> pack = x.at(i, k);
        Moments<C> some{.count = V};
#pragma unroll
        for (int v = 0; v < V; ++v) {
          some.mean += (C(pack.values[v]) - first) / V;
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const C distance = C(pack.values[v]) - first - some.mean;
          some.squares += distance * distance;
        }
        mine.add(some);
      });
    }
    mine = group_reduce<Rows::kThreads>(mine, rows.group, Plus());
    const C rstd = 1 / std::sqrt(mine.squares / static_cast<C>(rows.size) + static_cast<C>(kernel.eps));
    const C mean = first + mine.mean;
    const C rest = (first - (mean - (mean - first))) + (mine.mean - (mean - first));  // that `mean` has lost (Knuth)
    if (row < rows.rows && rows.lane() == 0) {
      kernel.statistics[row] = {static_cast<double>(first) + static_cast<double>(mine.mean), static_cast<double>(rstd)};
    }
    if (!valid) {
      continue;
    }
    const C shift = -rest * rstd;
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
        C value = (C(pack.values[v]) - mean) * rstd + shift;
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
  const Rows rows(queue, kernel.rows, kernel.size, V);
  queue.launch(LayerNorm::kName, queue.blocks_for(rows.rows, rows.units()), Rows::kThreads, 0,
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
