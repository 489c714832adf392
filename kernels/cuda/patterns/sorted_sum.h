#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/fault.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/math.h>

// Sums over the entries of a sorted list that have the same key, in the order of the list, for index (IndexAdd) and
// gather (ScatterAdd). `Places` gives offsets in elements:
//   int64_t out(int64_t outer, uint64_t key) const, in(int64_t outer, uint32_t position) const

namespace tandem::inline v0::kernels {

// ---- Sorting a list by its indices (sort.cu) ----

/// Keys on a GPU and the memory to sort them in, which is all of a call's workspace.
struct KeySort {
  static constexpr std::int64_t kMost = std::int64_t{1} << 24;  // longer lists are cut: workspaces stay allocated

  std::int64_t count;
  std::uint64_t* keys;          // filled by the caller
  std::uint32_t* positions;     // the result: ascending keys, equal ones in the order of the list
  std::uint32_t* spare;         // as many as positions
  std::uint32_t* digit_counts;  // per tile
  std::uint32_t* totals;        // over all tiles
};

/// Allocates memory for `count` keys, at most KeySort::kMost.
KeySort room_to_sort(const Queue& queue, std::int64_t count);

/// Computes `positions`, for keys up to `largest`. The sort is stable, and its result does not depend on timing.
void sort_positions(const Queue& queue, const char* name, KeySort& sort, std::uint64_t largest);

// ---- Sums over a sorted list ----

/// A sorted list. Keys from `end` on are left out.
struct SortedList {
  const std::uint64_t* keys;
  const std::uint32_t* positions;
  std::int64_t count;
  std::uint64_t end;

  __device__ std::uint64_t key(std::int64_t i) const { return keys[positions[i]]; }
  __device__ bool has_at(std::int64_t i, std::uint64_t wanted) const { return i < count && key(i) == wanted; }
};

namespace sorted_sum {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kAhead = 4;                  // reads in flight in a thread
inline constexpr std::int64_t kLong = 128;        // most entries of one key that a single thread adds
inline constexpr std::int64_t kMostTiles = 1024;  // in the grid of the blocks that add longer ones
inline constexpr std::int64_t kMostOuter = 1024;
inline constexpr int kStage = 64;  // entries that such a block reads at once

template <class T, int V>
__device__ __forceinline__ void add_to(Pack<T, V>& sums, const Pack<T, V>& values) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    sums.values[i] = wrapping_add(sums.values[i], values.values[i]);
  }
}

// A work item is (outer, entry, column). The thread of a key's first entry adds all of them.
template <class T, int V, class Places>
__global__ void __launch_bounds__(kThreads) add_short(T* out, const T* in, SortedList list, Places places,
                                                      LongDivider columns, LongDivider entries, std::int64_t items) {
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; item < items; item += threads) {
    const std::int64_t row = columns.quotient(item);
    const std::int64_t column = (item - row * columns.divisor()) * V;
    const std::int64_t outer = entries.quotient(row);
    const std::int64_t first = row - outer * entries.divisor();
    const std::uint64_t key = list.key(first);
    if (key >= list.end || (first > 0 && list.key(first - 1) == key) || list.has_at(first + kLong, key)) {
      continue;
    }
    auto* target = reinterpret_cast<Pack<T, V>*>(out + places.out(outer, key) + column);
    Pack<T, V> sums = *target;
    bool more = true;
    for (std::int64_t i = first; more; i += kAhead) {
      Pack<T, V> values[kAhead] = {};
      bool exists[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        exists[k] = list.has_at(i + k, key);
        if (exists[k]) {
          values[k] = *reinterpret_cast<const Pack<T, V>*>(in + places.in(outer, list.positions[i + k]) + column);
        }
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (exists[k]) {
          add_to(sums, values[k]);
        }
      }
      more = exists[kAhead - 1];
    }
    *target = sums;
  }
}

// Adds all entries of a key, from `first` on, for 32 columns, by one block. Eight warps read 64 entries; the first warp
// adds them in order while the next 64 are being read.
template <class T, int V, class Places>
__device__ void add_tile(T* out, const T* in, const SortedList& list, const Places& places, std::int64_t outer,
                         std::int64_t first, std::int64_t tile, std::int64_t columns) {
  constexpr int kRows = kStage / kWarps;
  __shared__ Pack<T, V> stage[kStage][32];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::uint64_t key = list.key(first);
  const std::int64_t column = tile * 32 + lane;
  const bool mine = column < columns;
  Pack<T, V> values[kRows] = {};
  const auto read = [&](std::int64_t begin) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const std::int64_t i = begin + k * kWarps + warp;
      if (mine && list.has_at(i, key)) {
        values[k] = *reinterpret_cast<const Pack<T, V>*>(in + places.in(outer, list.positions[i]) + column * V);
      }
    }
  };
  auto* target = reinterpret_cast<Pack<T, V>*>(out + places.out(outer, key) + column * V);
  Pack<T, V> sums = {};
  if (mine && warp == 0) {
    sums = *target;
  }
  read(first);
  for (std::int64_t i = first; list.has_at(i, key); i += kStage) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      stage[k * kWarps + warp][lane] = values[k];
    }
    __syncthreads();
    read(i + kStage);
    if (warp == 0) {
      int rows = kStage;
      while (!list.has_at(i + rows - 1, key)) {  // only in the last stage
        --rows;
      }
#pragma unroll 8
      for (int k = 0; k < rows; ++k) {
        add_to(sums, stage[k][lane]);
      }
    }
    __syncthreads();
  }
  if (mine && warp == 0) {
    *target = sums;
  }
}

// Every kLong-th entry has a block. The first block whose entry has a key owns that key, if its entries are many. Few
// blocks have work, so more than two on a multiprocessor are not worth spilled registers.
template <class T, int V, class Places>
__global__ void __launch_bounds__(kThreads, 2)
    add_long(T* out, const T* in, SortedList list, Places places, std::int64_t columns, std::int64_t all_outer) {
  const std::int64_t middle = std::int64_t{blockIdx.x} * kLong;
  const std::uint64_t key = list.key(middle);
  if (key >= list.end || (middle > 0 && list.key(middle - kLong) == key)) {
    return;
  }
  std::int64_t first = middle;  // becomes the key's first entry, by bisection
  std::int64_t other = middle > 0 ? middle - kLong : -1;
  while (first - other > 1) {
    const std::int64_t half = other + (first - other) / 2;
    (list.key(half) == key ? first : other) = half;
  }
  if (!list.has_at(first + kLong, key)) {
    return;
  }
  for (std::int64_t outer = blockIdx.z; outer < all_outer; outer += gridDim.z) {
    for (std::int64_t tile = blockIdx.y; tile * 32 < columns; tile += gridDim.y) {
      add_tile<T, V>(out, in, list, places, outer, first, tile, columns);
    }
  }
}

}  // namespace sorted_sum

/// Adds out[places.out(o, key) + c * V ...] += in[places.in(o, position) + c * V ...] for every entry of the list, in
/// packs of V, for c below `columns`.
template <int V, class T, class Places>
void add_sorted(const Queue& queue, const char* name, T* out, const T* in, const SortedList& list, const Places& places,
                std::int64_t outer, std::int64_t columns) {
  using namespace sorted_sum;
  const std::int64_t items = outer * list.count * columns;
  queue.launch(name, queue.blocks_for(items, kThreads), kThreads, 0, add_short<T, V, Places>, out, in, list, places,
               LongDivider(columns, items), LongDivider(list.count, outer * list.count), items);
  if (list.count > kLong) {
    const std::int64_t tiles = (columns + 31) / 32;
    const dim3 blocks(static_cast<unsigned int>((list.count + kLong - 1) / kLong),
                      static_cast<unsigned int>(tiles < kMostTiles ? tiles : kMostTiles),
                      static_cast<unsigned int>(outer < kMostOuter ? outer : kMostOuter));
    queue.launch(name, blocks, kThreads, 0, add_long<T, V, Places>, out, in, list, places, columns, outer);
  }
}

}  // namespace tandem::inline v0::kernels
