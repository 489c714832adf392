#pragma once

#include <bit>
#include <cstdint>

#include <cuda_runtime.h>

// Sums and other reductions over the threads of a warp or a block, for the patterns that reduce and for layer_norm,
// scan and softmax. Blocks have one dimension and a multiple of 32 threads, and all of them must call. Orders are
// fixed, so results are too.

namespace tandem::inline v0::kernels {

inline constexpr int kWarpThreads = 32;
inline constexpr std::uint32_t kWholeWarp = 0xFFFF'FFFF;

/// The value of lane (this lane ^ mask). T is made of 4-byte words.
template <class T>
__device__ __forceinline__ T shuffle_xor(const T& value, int mask) {
  static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
  struct Words {
    std::uint32_t words[sizeof(T) / sizeof(std::uint32_t)];
  };
  Words moved = std::bit_cast<Words>(value);
#pragma unroll
  for (std::uint32_t& word : moved.words) {
    word = __shfl_xor_sync(kWholeWarp, word, mask);
  }
  return std::bit_cast<T>(moved);
}

/// Reduces the values of each `group` neighbouring threads by op(T, T), which is associative up to rounding. `group` is
/// a power of 2 and at most the block's kThreads. All threads of a group get the same result.
template <int kThreads, class T, class Op>
__device__ __forceinline__ T group_reduce(T value, int group, Op op) {
#pragma unroll
  for (int mask = 1; mask < kWarpThreads; mask *= 2) {
    if (mask >= group) {
      break;
    }
    const T other = shuffle_xor(value, mask);
    value = (threadIdx.x & static_cast<unsigned>(mask)) == 0 ? op(value, other) : op(other, value);
  }
  if constexpr (kThreads > kWarpThreads) {
    if (group > kWarpThreads) {
      alignas(T) __shared__ unsigned char memory[kThreads / kWarpThreads * sizeof(T)];
      T* of_warps = reinterpret_cast<T*>(memory);
      const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
      __syncthreads();  // all values of an earlier call have been read
      if (threadIdx.x % kWarpThreads == 0) {
        of_warps[warp] = value;
      }
      __syncthreads();
      const int warps = group / kWarpThreads;
      const int first = warp / warps * warps;
      value = of_warps[first];
      for (int i = 1; i < warps; ++i) {
        value = op(value, of_warps[first + i]);
      }
    }
  }
  return value;
}

/// Reduces the values of all threads of a block, like group_reduce().
template <int kThreads, class T, class Op>
__device__ __forceinline__ T block_reduce(T value, Op op) {
  static_assert(kThreads % kWarpThreads == 0);
  return group_reduce<kThreads>(value, kThreads, op);
}

struct Plus {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value) {
  return block_reduce<kThreads>(value, Plus());
}

/// The sum of the values of the block's threads before this one. `all` becomes the sum over all threads.
template <int kThreads, class T>
__device__ __forceinline__ T block_exclusive_sum(T value, T& all) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  T sum = value;
#pragma unroll
  for (int apart = 1; apart < kWarpThreads; apart *= 2) {
    const T before = __shfl_up_sync(kWholeWarp, sum, apart);
    sum = lane >= apart ? before + sum : sum;
  }
  const T neighbour = __shfl_up_sync(kWholeWarp, sum, 1);
  T result = lane == 0 ? T(0) : neighbour;
  all = __shfl_sync(kWholeWarp, sum, kWarpThreads - 1);
  if constexpr (kThreads > kWarpThreads) {
    __shared__ T of_warps[kThreads / kWarpThreads];
    __syncthreads();
    if (lane == 0) {
      of_warps[warp] = all;
    }
    __syncthreads();
    T before = 0;
    all = 0;
    for (int i = 0; i < kThreads / kWarpThreads; ++i) {
      before = i == warp ? all : before;
      all = all + of_warps[i];
    }
    result = before + result;
  }
  return result;
}

}  // namespace tandem::inline v0::kernels
