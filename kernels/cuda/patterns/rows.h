#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/pack.h>

// Kernels over the rows of a dense matrix, for softmax and cross_entropy. A group of threads shares a row: some lanes
// of a warp, so that short rows fill it, or a block. Rows may have any length and begin anywhere. A row that is read
// twice is kept in shared memory. (For rows that stay in registers, use register_rows.h.)

namespace tandem::inline v0::kernels::rows {

inline constexpr int kLaneThreads = 256;               // threads of a block that is divided into groups of lanes
inline constexpr std::int64_t kLongestOfLanes = 1024;  // longer rows have a block
inline constexpr std::int64_t kLong = 8192;            // longer rows have a large block
inline constexpr int kSmallBlock = 256;
inline constexpr int kLargeBlock = 512;

/// Lanes for rows of `size`: enough for at most four elements per lane, but no more than a warp.
inline int lanes_for(std::int64_t size) noexcept {
  int lanes = 1;
  while (lanes < kWarpThreads && lanes * 4 < size) {
    lanes *= 2;
  }
  return lanes;
}

/// The threads that share a row: all threads of a block of kBlock, or `lanes` lanes of a warp if kBlock is 0. All
/// threads of a block must call every function.
template <int kBlock>
struct Group {
  static constexpr int kThreads = kBlock == 0 ? kLaneThreads : kBlock;
  static constexpr int kBlocks = 512 / kThreads;  // must fit at once, so that registers are not spilt for more
  int size, rank;

  __device__ explicit Group(int lanes)
      : size(kBlock == 0 ? lanes : kBlock), rank(static_cast<int>(threadIdx.x) & (size - 1)) {}

  /// Reduces the group's values by op; all of its threads get the result.
  template <class T, class Op>
  __device__ T all(T value, Op op) const {
    return group_reduce < kBlock == 0 ? kWarpThreads : kBlock > (value, kBlock == 0 ? size : kBlock, op);
  }
  __device__ double sum(double value) const { return all(value, Plus()); }

  /// Calls body(row, true if the row exists) for the group's share of `rows`. Each group of a warp makes the same
  /// number of calls.
  template <class Body>
  __device__ void for_each(std::int64_t rows, Body&& body) const {
    const int groups = kThreads / size;
    const int in_block = static_cast<int>(threadIdx.x) / size;
    const int first = kBlock == 0 ? static_cast<int>(threadIdx.x) / kWarpThreads * (kWarpThreads / size) : 0;
    for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * groups; base + first < rows;
         base += static_cast<std::int64_t>(gridDim.x) * groups) {
      body(base + in_block, base + in_block < rows);
      if constexpr (kBlock != 0) {
        __syncthreads();  // shared memory is free for the next row
      }
    }
  }
};

/// Calls f.operator()<V>(const Pack<T, V> (&x)[N], result, c) for the elements of a row of `size`: V of them, from c
/// on. x[k] holds the elements of in[k]. `result` is stored to `out` if kStore is set. V fills 16 bytes if all pointers
/// have the same alignment, except for the elements before the first and after the last aligned pack.
template <bool kStore, int N, class T, class F, int kBlock>
__device__ __forceinline__ void visit(const Group<kBlock>& group, std::int64_t size, const T* const (&in)[N], T* out,
                                      F&& f) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  constexpr int kUnroll = (N == 1 ? 4 : 2) / (V == 4   ? 1
                                              : V == 8 ? 2
                                              : N == 1 ? 4
                                                       : 2);  // as many as registers have room for
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
    for (int u = 0; u < kUnroll; ++u) {  // all reads come first, so that they are in flight together
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

/// Launch parameters of a kernel over rows.
struct Plan {
  unsigned int blocks;
  int lanes;           // lanes per row, for rows without a block of their own
  bool staged;         // true if a row is kept in shared memory between two passes
  std::size_t shared;  // bytes of shared memory for that
};

/// Calls body.operator()<kBlock>(); kBlock is 0 for groups of lanes.
template <class Body>
void for_row_size(std::int64_t size, Body&& body) {
  if (size <= kLongestOfLanes) {
    body.template operator()<0>();
  } else if (size <= kLong) {
    body.template operator()<kSmallBlock>();
  } else {
    body.template operator()<kLargeBlock>();
  }
}

/// The block's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return static_cast<T*>(emulated_gpu::dynamic_shared());
#endif
}

/// Bytes of dynamic shared memory that a block may ask for, besides up to 4 KiB of static memory.
inline std::size_t most_dynamic_shared(const Queue& queue) {
  int bytes = 0;
  cuda::require(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, queue.gpu().index),
                "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes) - 4096;
}

/// Must be called before a launch of kKernel with `bytes` of dynamic shared memory: a kernel needs permission for more
/// than 48 KiB.
template <auto kKernel>
void allow_dynamic_shared(const Queue& queue, std::size_t bytes) {
  static std::atomic<std::uint64_t> allowed{0};  // bit i: GPU i
  const std::uint64_t bit = std::uint64_t{1} << (queue.gpu().index % 64);
  if (bytes <= 44 * 1024 || (allowed.load(std::memory_order_relaxed) & bit) != 0) {
    return;
  }
  cuda::require(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(most_dynamic_shared(queue))),
                "cudaFuncSetAttribute");
  allowed.fetch_or(bit, std::memory_order_relaxed);
}

/// Bytes in shared memory for a row of `size`, which keeps its distance from a 16-byte boundary.
template <class T>
TANDEM_HD constexpr std::int64_t stage_bytes(std::int64_t size) noexcept {
  return (size * static_cast<std::int64_t>(sizeof(T)) + 31) / 16 * 16;
}

/// Place in shared memory for such a row, the k-th of its block.
template <class T>
__device__ T* stage(const T* row, std::int64_t size, int k) {
  return reinterpret_cast<T*>(dynamic_shared<unsigned char>() + k * stage_bytes<T>(size) +
                              reinterpret_cast<std::uintptr_t>(row) % 16);
}

/// Plans a launch of kKernel, whose groups are Group<kBlock>s, over `rows` rows of `size` elements of T. A block
/// should keep its row of `arrays` arrays in shared memory. Blocks walk over rows, so there are at most as many as the
/// GPU runs at once.
template <int kBlock, auto kKernel, class T>
Plan plan(const Queue& queue, std::int64_t rows, std::int64_t size, int arrays) {
  Plan plan{.blocks = 1, .lanes = lanes_for(size), .staged = false, .shared = 0};
  std::int64_t at_once = 2048 / Group<kBlock>::kThreads;
  if constexpr (kBlock == 0) {
    const int groups = kLaneThreads / plan.lanes;
    rows = (rows + groups - 1) / groups;
  } else if (arrays > 0) {
    const auto bytes = static_cast<std::size_t>(arrays * stage_bytes<T>(size));
    if (const std::size_t most = most_dynamic_shared(queue); bytes <= most) {
      plan.staged = true;
      plan.shared = bytes;
      allow_dynamic_shared<kKernel>(queue, plan.shared);
      const auto fit = static_cast<std::int64_t>(most / plan.shared);
      at_once = fit < 1 ? 1 : fit < at_once ? fit : at_once;
    }
  }
  at_once *= queue.gpu().multiprocessors;
  plan.blocks = static_cast<unsigned int>(rows < 1 ? 1 : rows < at_once ? rows : at_once);
  return plan;
}

/// Launches kKernel(by, plan) for the rows of `by`.
template <int kBlock, auto kKernel, class T, class Arguments>
void launch(const Queue& queue, const char* name, const Arguments& by, int arrays) {
  const Plan made = plan<kBlock, kKernel, T>(queue, by.rows, by.size, arrays);
  queue.launch(name, made.blocks, Group<kBlock>::kThreads, made.shared, kKernel, by, made);
}

}  // namespace tandem::inline v0::kernels::rows
