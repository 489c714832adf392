#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tandem/kernels/cuda/block.h>
#include <tandem/kernels/cuda/elementwise.h>

// Internal: kernels over the rows of a dense matrix, each of which a group of threads shares: some lanes of a warp, so
// that short rows fill it, or a block.

namespace tandem::inline v0::kernels::rows {

inline constexpr int kLaneThreads = 256;               // of a block whose lanes are grouped
inline constexpr std::int64_t kLongestOfLanes = 1024;  // longer rows have a block
inline constexpr std::int64_t kLong = 8192;            // and these a large one
inline constexpr int kSmallBlock = 256;
inline constexpr int kLargeBlock = 512;

/// Lanes for rows of `size`: a pack of four or more for each.
inline int lanes_for(std::int64_t size) noexcept {
  int lanes = 1;
  while (lanes < kWarpThreads && lanes * 4 < size) {
    lanes *= 2;
  }
  return lanes;
}

/// The threads that share a row: all of a block of kBlock threads, or, where that is 0, `lanes` of a warp. All threads
/// of a block call everything.
template <int kBlock>
struct Group {
  static constexpr int kThreads = kBlock == 0 ? kLaneThreads : kBlock;
  static constexpr int kBlocks = 512 / kThreads;  // that must fit at once; without it, registers are spilt for more
  int size, rank;

  __device__ explicit Group(int lanes)
      : size(kBlock == 0 ? lanes : kBlock), rank(static_cast<int>(threadIdx.x) & (size - 1)) {}

  /// What op makes of the group's values, in all of its threads.
  template <class T, class Op>
  __device__ T all(T value, Op op) const {
    if constexpr (kBlock != 0) {
      return block_reduce<kBlock>(value, op);
    } else {
      for (int mask = 1; mask < size; mask *= 2) {
        const T other = shuffle_xor(value, mask);
        value = (rank & mask) == 0 ? op(value, other) : op(other, value);
      }
      return value;
    }
  }
  __device__ double sum(double value) const { return all(value, Plus()); }

  /// body(row, whether there is such a row) for the group's share of `rows`; as often in each group of a warp.
  template <class Body>
  __device__ void for_each(std::int64_t rows, Body&& body) const {
    const int groups = kThreads / size;
    const int in_block = static_cast<int>(threadIdx.x) / size;
    const int first = kBlock == 0 ? static_cast<int>(threadIdx.x) / kWarpThreads * (kWarpThreads / size) : 0;
    for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * groups; base + first < rows;
         base += static_cast<std::int64_t>(gridDim.x) * groups) {
      body(base + in_block, base + in_block < rows);
      if constexpr (kBlock != 0) {
        __syncthreads();  // shared memory is the next row's now
      }
    }
  }
};

/// f.operator()<V>(const Pack<T, V> (&x)[N], result, c) for the elements of a row of `size`, V from c on; x[k] are
/// in[k]'s. What it writes to result goes to `out`, if there is one. V is that of 16 bytes where all pointers agree on
/// where these begin, but for what is before the first and behind the last.
template <bool kStore, int N, class T, class F, int kBlock>
__device__ __forceinline__ void visit(const Group<kBlock>& group, std::int64_t size, const T* const (&in)[N], T* out,
                                      F&& f) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  constexpr int kUnroll = (N == 1 ? 4 : 2) / (V == 4   ? 1
                                              : V == 8 ? 2
                                              : N == 1 ? 4
                                                       : 2);  // what registers have room for
  const auto place = [](const T* p) { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p) % 16); };
  const unsigned at = place(in[0]);
  bool agree = !kStore || place(out) == at;
#pragma unroll
  for (int k = 1; k < N; ++k) {
    agree = agree && place(in[k]) == at;
  }
  std::int64_t head = size;
  if (const std::int64_t wanted = (16 - at) % 16 / static_cast<int>(sizeof(T)); agree && wanted < size) {
    head = wanted;
  }
  const std::int64_t packs = (size - head) / V;
  const auto one = [&](std::int64_t c) {
    Pack<T, 1> x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k].values[0] = in[k][c];
    }
    Pack<T, 1> result;
    f.template operator()<1>(x, result, c);
    if constexpr (kStore) {
      out[c] = result.values[0];
    }
  };
  for (std::int64_t c = group.rank; c < head; c += group.size) {
    one(c);
  }
  for (std::int64_t first = group.rank; first < packs; first += kUnroll * group.size) {
    Pack<T, V> x[kUnroll][N];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {  // all reads first, so that they are under way together
      if (const std::int64_t pack = first + u * group.size; pack < packs) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          x[u][k] = reinterpret_cast<const Pack<T, V>*>(in[k] + head)[pack];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (const std::int64_t pack = first + u * group.size; pack < packs) {
        Pack<T, V> result;
        f.template operator()<V>(x[u], result, head + pack * V);
        if constexpr (kStore) {
          reinterpret_cast<Pack<T, V>*>(out + head)[pack] = result;
        }
      }
    }
  }
  for (std::int64_t c = head + packs * V + group.rank; c < size; c += group.size) {
    one(c);
  }
}

/// The highest of some values, and the sum of exp(value - highest), of one pass over them.
template <class C>
struct Exponentials {
  C highest = -std::numeric_limits<C>::infinity();
  double sum = 0;

  template <int V>
  __device__ void add(const C (&x)[V]) {
    C top = x[0];
#pragma unroll
    for (int v = 1; v < V; ++v) {
      top = std::fmax(top, x[v]);
    }
    if (top > highest) {
      sum *= static_cast<double>(std::exp(highest - top));
      highest = top;
    }
    const C shift = highest == -std::numeric_limits<C>::infinity() ? C(0) : highest;  // -inf - -inf is no number
    C part = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      part += std::exp(x[v] - shift);
    }
    sum += static_cast<double>(part);
  }

  /// Those of all of a group's threads; a row whose highest value is -inf has no number as its sum.
  template <class AnyGroup>
  __device__ Exponentials joined(const AnyGroup& group) const {
    const C top = group.all(highest, [](C a, C b) { return a > b ? a : b; });
    const double mine = highest == top ? sum : sum * static_cast<double>(std::exp(highest - top));
    const bool none = top == -std::numeric_limits<C>::infinity();
    return {top, group.sum(none ? std::numeric_limits<double>::quiet_NaN() : mine)};
  }
};

/// Those of a row, which goes to `copy` as well, if that is not null.
template <class T, int kBlock, class C = ComputeType<T>>
__device__ __forceinline__ Exponentials<C> exponentials(const Group<kBlock>& group, const T* row, std::int64_t size,
                                                        T* copy) {
  Exponentials<C> found;
  const auto add = [&]<int V>(const Pack<T, V>(&x)[1], Pack<T, V>& result, std::int64_t) {
    C values[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      values[v] = x[0].values[v];
    }
    found.add(values);
    result = x[0];
  };
  if (copy != nullptr) {
    visit<true, 1, T>(group, size, {row}, copy, add);
  } else {
    visit<false, 1, T>(group, size, {row}, copy, add);
  }
  return found.joined(group);
}

}  // namespace tandem::inline v0::kernels::rows
