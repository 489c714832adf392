#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/core/host_device.h>
#include <tandem/kernels/cuda/block.h>
#include <tandem/kernels/cuda/pack.h>
#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/cuda/shared.h>

// Internal: kernels over the rows of a dense matrix, each of which a group of threads shares: some lanes of a warp, so
// that short rows fill it, or a block. Rows may have any length and begin anywhere; what is read twice waits in shared
// memory. (Rows that stay in registers are register_rows.h's.)

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
    return group_reduce < kBlock == 0 ? kWarpThreads : kBlock > (value, kBlock == 0 ? size : kBlock, op);
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

/// What a kernel over rows is launched with.
struct Plan {
  unsigned int blocks;
  int lanes;           // of a row that has no block of its own
  bool staged;         // whether a row is kept in shared memory between two passes
  std::size_t shared;  // bytes for that
};

/// body.operator()<kBlock>(), with 0 for groups of lanes.
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

/// For a row of `size` in shared memory, as far from 16 bytes as it is outside.
template <class T>
TANDEM_HD constexpr std::int64_t stage_bytes(std::int64_t size) noexcept {
  return (size * static_cast<std::int64_t>(sizeof(T)) + 31) / 16 * 16;
}

/// Where such a row, the k-th of its block, goes.
template <class T>
__device__ T* stage(const T* row, std::int64_t size, int k) {
  return reinterpret_cast<T*>(dynamic_shared<unsigned char>() + k * stage_bytes<T>(size) +
                              reinterpret_cast<std::uintptr_t>(row) % 16);
}

/// For kKernel, whose groups are Group<kBlock>s, over `rows` rows of `size` elements of T, of which `arrays` want to be
/// kept in shared memory. Blocks walk over rows: there are as many as the GPU has at once.
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

/// kKernel(by, plan) for the rows of `by`.
template <int kBlock, auto kKernel, class T, class Arguments>
void launch(const Queue& queue, const char* name, const Arguments& by, int arrays) {
  const Plan made = plan<kBlock, kKernel, T>(queue, by.rows, by.size, arrays);
  queue.launch(name, made.blocks, Group<kBlock>::kThreads, made.shared, kKernel, by, made);
}

}  // namespace tandem::inline v0::kernels::rows
