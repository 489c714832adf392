#pragma once

#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/pack.h>
#include <tandem/kernels/cuda/patterns/reduction_plan.h>

// Dense rows that begin on pack boundaries, for layer_norm. A group of threads, from one thread to a block, shares each
// row. A row of at most kPacks packs per thread is read once and stays in its group's registers; a longer one is read
// again, from the cache. (For rows that begin anywhere, use rows.h.)

namespace tandem::inline v0::kernels {

template <int kBlock, int kPacksOfThread>
struct RegisterRows {
  static constexpr int kThreads = kBlock;
  static constexpr int kPacks = kPacksOfThread;

  std::int64_t rows, size;
  std::int64_t packs;  // packs in a row
  int group;           // threads in a group
  bool kept;           // true if rows stay in registers

  RegisterRows(const Queue& queue, std::int64_t row_count, std::int64_t row_size, int pack)
      : rows(row_count), size(row_size), packs(row_size / pack) {
    const std::int64_t fill = std::int64_t{queue.gpu().multiprocessors} * 2048;
    group = ReductionPlan::power_of_2((packs + kPacks - 1) / kPacks, kThreads);
    while (group < kThreads && group < packs && (group < 8 || rows * group * 2 <= fill)) {
      group *= 2;
    }
    kept = packs <= std::int64_t{group} * kPacks;
  }
  TANDEM_HD int units() const noexcept { return kThreads / group; }

  /// Index of the thread's first pack in its row.
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % group; }
};

/// One thread's packs of a row.
template <class Rows, class T, int V, bool kKept>
struct RowPacks {
  const T* row;
  Pack<T, V> kept[kKept ? Rows::kPacks : 1];

  __device__ __forceinline__ RowPacks(const Rows& rows, const T* begin) : row(begin) {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < Rows::kPacks; ++k) {
        const int i = rows.lane() + k * rows.group;
        if (i < rows.packs) {
          kept[k] = load_pack<V>(row + i * V, true);
        }
      }
    }
  }
  /// Returns pack i of the row, which is the thread's k-th.
  __device__ __forceinline__ Pack<T, V> at(std::int64_t i, int k) const {
    if constexpr (kKept) {
      return kept[k];
    } else {
      return load_pack<V>(row + i * V, true);
    }
  }
};

/// Calls body(i, k) for each pack i of the thread, its k-th (k is 0 if rows are not kept).
template <bool kKept, class Rows, class Body>
__device__ __forceinline__ void for_each_pack(const Rows& rows, Body&& body) {
  if constexpr (kKept) {
#pragma unroll
    for (int k = 0; k < Rows::kPacks; ++k) {
      const int i = rows.lane() + k * rows.group;
      if (i < rows.packs) {
        body(i, k);
      }
    }
  } else {
    for (std::int64_t i = rows.lane(); i < rows.packs; i += rows.group) {
      body(i, 0);
    }
  }
}

/// Two sums.
template <class C>
struct TwoSums {
  C a = 0;
  C b = 0;
  friend __device__ TwoSums operator+(TwoSums x, TwoSums y) { return {x.a + y.a, x.b + y.b}; }
};

}  // namespace tandem::inline v0::kernels
