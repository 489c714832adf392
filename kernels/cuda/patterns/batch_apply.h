#pragma once

#include <algorithm>
#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/cuda/patterns/reduction_plan.h>

// Applies a formula to each element of a dense [outer, channels, inner] tensor, with coefficients per channel, for
// batch_norm. The tensor is walked as a matrix of `outer` rows. A thread has a pack of columns, whose coefficients stay
// in its registers while it goes down the rows; 32 threads side by side move 512 bytes of a row.
//
// A functor has
//   Coefficients        constants of a channel, made by coefficients(channel)
//   Values<V>           the values read at V neighbours by load<V>(offset)
//   value(const Values<V>&, int i, const Coefficients&)    the result for neighbour i
//   T* out

namespace tandem::inline v0::kernels {

namespace batch {

inline constexpr int kThreads = 256;
inline constexpr int kMostSums = 4;  // most columns of a thread that makes sums; more would not fit its registers

/// Packs that a thread reads at once. Coefficients of many columns leave registers for fewer.
template <int V, bool kOneChannel>
inline constexpr int kTogether = kOneChannel || V <= kMostSums ? 4 : 2;

template <int V, bool kOneChannel, class F>
__global__ void __launch_bounds__(kThreads)
    apply(F f, std::int64_t rows, std::int64_t packs, int across, WideDivider by_inner) {
  using T = typename F::Element;
  const std::int64_t column = std::int64_t{blockIdx.x} * across + static_cast<int>(threadIdx.x) % across;
  if (column >= packs) {
    return;
  }
  constexpr int kChannels = kOneChannel ? 1 : V;
  constexpr int kUnroll = kTogether<V, kOneChannel>;
  typename F::Coefficients coefficients[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    coefficients[i] = f.coefficients(by_inner.quotient(column * V + i));
  }
  const int down = kThreads / across;
  const std::int64_t step = std::int64_t{gridDim.y} * down;
  for (std::int64_t first = std::int64_t{blockIdx.y} * down + static_cast<int>(threadIdx.x) / across; first < rows;
       first += kUnroll * step) {
    typename F::template Values<V> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t row = first + u * step;
      if (row < rows) {
        values[u] = f.template load<V>((row * packs + column) * V);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t row = first + u * step;
      if (row < rows) {
        Pack<T, V> result;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          result.values[i] = T(f.value(values[u], i, coefficients[kOneChannel ? 0 : i]));
        }
        *reinterpret_cast<Pack<T, V>*>(f.out + (row * packs + column) * V) = result;
      }
    }
  }
}

template <int V, bool kOneChannel, class F>
void launch_apply(const Queue& queue, const char* name, const F& f, std::int64_t rows, std::int64_t columns,
                  std::int64_t inner) {
  const std::int64_t packs = columns / V;
  const int across = ReductionPlan::power_of_2(packs, 32);
  const std::int64_t blocks = (packs + across - 1) / across;
  const std::int64_t rows_at_once = std::int64_t{kThreads / across} * kTogether<V, kOneChannel>;
  const std::int64_t wanted = (rows + rows_at_once - 1) / rows_at_once;
  const std::int64_t fill = std::int64_t{queue.gpu().multiprocessors} * 16 / blocks;
  const std::int64_t down = std::max<std::int64_t>(1, std::min(wanted, fill));
  queue.launch(name, dim3(static_cast<unsigned int>(blocks), static_cast<unsigned int>(down)), kThreads, 0,
               apply<V, kOneChannel, F>, f, rows, packs, across, WideDivider(inner));
}

/// A reduction over all dimensions but the channels.
struct Channels {
  std::int64_t kept_strides[kMaxDims] = {};
  std::int64_t reduced_strides[kMaxDims] = {};
  ReductionProblem problem{};

  Channels(std::int64_t outer, std::int64_t channels, std::int64_t inner, std::uintptr_t alignment, int item) {
    kept_strides[0] = inner;
    reduced_strides[0] = channels * inner;
    problem.kept = {1, {channels}};
    problem.reduced = {1, {outer}};
    if (channels == 1 || outer == 1) {
      problem.reduced.sizes[0] = outer * inner;
      reduced_strides[0] = 1;
    } else if (inner != 1) {
      problem.reduced.ndim = 2;
      problem.reduced.sizes[1] = inner;
      reduced_strides[1] = 1;
    }
    problem.kept_strides = kept_strides;
    problem.reduced_strides = reduced_strides;
    problem.alignment = alignment;
    problem.item = item;
  }
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;
};

}  // namespace batch

/// Applies f to a tensor. `alignment` is that of the least aligned operand.
template <class F>
void for_each_of_channels(const Queue& queue, const char* name, const F& f, std::int64_t outer, std::int64_t channels,
                          std::int64_t inner, std::uintptr_t alignment) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(typename F::Element));
  const std::int64_t columns = channels * inner;
  if (outer == 0 || columns == 0) {
    return;
  }
  if (columns % kWide != 0 || alignment % 16 != 0) {
    batch::launch_apply<1, true>(queue, name, f, outer, columns, inner);
  } else if (inner % kWide == 0) {
    batch::launch_apply<kWide, true>(queue, name, f, outer, columns, inner);
  } else {
    batch::launch_apply<kWide, false>(queue, name, f, outer, columns, inner);
  }
}

}  // namespace tandem::inline v0::kernels
