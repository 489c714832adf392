#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/pack.h>

// Kernels over the rows of a dense matrix, for softmax and cross_entropy. A group of threads shares a row: some lanes
// of a warp, so that short rows fill it, a warp, or a block. Rows may have any length and begin anywhere. A row that is
// read twice is kept in shared memory. (For rows that stay in registers, use register_rows.h.)

namespace tandem::inline v0::kernels::rows {

inline constexpr int kLaneThreads = 256;               // threads of a block that is divided into smaller groups
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

/// The threads that share a row: all threads of a block of kBlock, a warp if kBlock is kWarpThreads, or `lanes` lanes
/// of one if kBlock is 0. All threads of a block must call every function.
template <int kBlock>
struct Group {
  static constexpr bool kInWarp = kBlock <= kWarpThreads;
  static constexpr int kThreads = kInWarp ? kLaneThreads : kBlock;
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
  /// Afterwards each thread sees what the group's others have written.
  __device__ void meet() const {
    if constexpr (kInWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  /// Calls body(row, true if the row exists) for the group's share of `rows`. Each group of a warp makes the same
  /// number of calls.
  template <class Body>
  __device__ void for_each(std::int64_t rows, Body&& body) const {
    const int groups = kThreads / size;
    const int in_block = static_cast<int>(threadIdx.x) / size;
    const int first = kInWarp ? static_cast<int>(threadIdx.x) / kWarpThreads * (kWarpThreads / size) : 0;
    for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * groups; base + first < rows;
         base += static_cast<std::int64_t>(gridDim.x) * groups) {
      body(base + in_block, base + in_block < rows);
      if constexpr (!kInWarp) {
        __syncthreads();  // shared memory is free for the next row
      }
    }
  }
};

/// Where the results of visit() go.
enum class To { nothing, memory, shared };

template <class F, class Packs>
__device__ __forceinline__ void look_ahead(F& f, const Packs& packs) {
  if constexpr (requires { f.ahead(packs); }) {
    f.ahead(packs);
  }
}

/// visit() of one part of a row, which begins at element `begin`.
template <To kTo, int N, class T, class F, int kBlock>
__device__ __forceinline__ void visit_part(const Group<kBlock>& group, int size, const T* const (&in)[N], T* out,
                                           std::int64_t begin, F& f) {
  constexpr int V = 16 / static_cast<int>(sizeof(T));
  // As many packs are read together as registers have room for.
  constexpr int kTogether = (N == 1 ? 4 : 2) / (V == 4 ? 1 : V == 8 ? 2 : N == 1 ? 4 : 2);
  const auto place = [](const T* p) { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p) % 16); };
  const unsigned at = place(in[0]);
  bool agree = kTo == To::nothing || place(out) == at;
#pragma unroll
  for (int k = 1; k < N; ++k) {
    agree = agree && place(in[k]) == at;
  }
  const int wanted = static_cast<int>((16 - at) % 16) / static_cast<int>(sizeof(T));
  const int head = agree && wanted < size ? wanted : size;
  const int packs = (size - head) / V;
  const auto use = [&]<int W>(const Pack<T, W>(&x)[N], int first) {
    Pack<T, W> result;
    f.template operator()<W>(x, result, begin + first);
    if constexpr (kTo == To::memory) {
      store_pack(out + first, result);
    } else if constexpr (kTo == To::shared) {
      store_pack_shared(out + first, result);
    }
  };
  const auto go = [&]<bool kAll>(int first) {
    Pack<T, V> x[kTogether][N];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {  // all reads come first, so that they are in flight together
      const int pack = first + u * group.size;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        x[u][k] = reinterpret_cast<const Pack<T, V>*>(in[k] + head)[kAll || pack < packs ? pack : first];
      }
    }
    look_ahead(f, x);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int pack = first + u * group.size;
      if (kAll || pack < packs) {
        use(x[u], head + pack * V);
      }
    }
  };
  int pack = group.rank;
#pragma unroll 1
  for (; pack + (kTogether - 1) * group.size < packs; pack += kTogether * group.size) {
    go.template operator()<true>(pack);
  }
  if (pack < packs) {
    go.template operator()<false>(pack);
  }
  const int odd = size - packs * V;  // elements outside of packs
#pragma unroll 1
  for (int i = group.rank; i < odd; i += group.size) {
    const int c = i < head ? i : packs * V + i;
    Pack<T, 1> x[1][N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[0][k].values[0] = in[k][c];
    }
    look_ahead(f, x);
    use(x[0], c);
  }
}

/// Calls f.operator()<V>(const Pack<T, V> (&x)[N], result, c) for the elements of a row of `size`: V of them, from c
/// on. x[k] holds the elements of in[k]. `result` is stored to `out`, unless kTo is `nothing`. V fills 16 bytes if all
/// pointers have the same alignment, except for the elements before the first and after the last aligned pack. If f has
/// a function ahead(x), it is first called with each group of packs that are read together.
template <To kTo, int N, class T, class F, int kBlock>
__device__ __forceinline__ void visit(const Group<kBlock>& group, std::int64_t size, const T* const (&in)[N], T* out,
                                      F&& f) {
  // In parts of so many elements, counts fit into 32 bits, which saves registers.
  constexpr int kPartBits = 30;
  const int last = static_cast<int>(size >> kPartBits);
#pragma unroll 1
  for (int p = 0; p <= last; ++p) {
    const std::int64_t from = static_cast<std::int64_t>(p) << kPartBits;
    const T* part[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      part[k] = in[k] + from;
    }
    visit_part<kTo>(group, p < last ? 1 << kPartBits : static_cast<int>(size & ((1 << kPartBits) - 1)), part,
                    kTo == To::nothing ? nullptr : out + from, from, f);
  }
}

/// Sets the elements of a row to 0.
template <int kBlock, class T>
__device__ __forceinline__ void clear(const Group<kBlock>& group, T* row, std::int64_t size) {
#pragma unroll 1
  for (std::int64_t c = group.rank; c < size; c += group.size) {
    row[c] = T(0);
  }
}

/// Launch parameters of a kernel over rows.
struct Plan {
  unsigned int blocks;
  int lanes;           // lanes per row, for rows without a block of their own
  bool staged;         // true if a row is kept in shared memory between two passes
  std::size_t shared;  // bytes of shared memory for that
};

/// Calls body.operator()<kBlock>(), where Group<kBlock> suits rows of `size`. kBlock is not kWarpThreads.
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
  if constexpr (Group<kBlock>::kInWarp) {
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

/// Launches kStaged(by, plan) for the rows of `by`, or kOther if they do not fit into shared memory.
template <int kBlock, auto kStaged, auto kOther, class T, class Arguments>
void launch(const Queue& queue, const char* name, const Arguments& by, int arrays) {
  const Plan made = plan<kBlock, kStaged, T>(queue, by.rows, by.size, arrays);
  queue.launch(name, made.blocks, Group<kBlock>::kThreads, made.shared, made.staged ? kStaged : kOther, by, made);
}

}  // namespace tandem::inline v0::kernels::rows
