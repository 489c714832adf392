#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tandem/core/float16.h>
#include <tandem/kernels/cuda/patterns/rows.h>

// The highest value of a row and the sum of its exponentials, in one pass over it, for softmax and cross_entropy.

namespace tandem::inline v0::kernels {

/// exp(x). In f32 by the GPU's own instruction for powers of 2: the result is right to a few units in the last place
/// for x of a few units, and 0 below 2^-126. Three instructions, where std::exp takes ten.
__device__ __forceinline__ float fast_exp(float x) {
  constexpr float kLog2e = 1.4426950408889634F;
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * kLog2e));
  return y;
#else
  const float y = std::exp2(x * kLog2e);
  return y < std::numeric_limits<float>::min() ? 0.0F : y;
#endif
}
__device__ __forceinline__ double fast_exp(double x) { return std::exp(x); }

/// exp(x - highest) for the values of a row.
template <class C>
struct Powers {
  C highest = -std::numeric_limits<C>::infinity();
  C shift = 0;  // `highest`, but not -inf: -inf - -inf would be NaN

  Powers() = default;
  __device__ explicit Powers(C top) : highest(top), shift(top == -std::numeric_limits<C>::infinity() ? C(0) : top) {}
  __device__ __forceinline__ C of(C x) const { return fast_exp(x - shift); }
};

/// The highest of some values and the sum of their powers, found in one pass over them.
template <class C>
struct Exponentials {
  Powers<C> powers;
  C sum = 0;  // of powers.of(x)

  /// Must be called with a value not below any that is then added.
  __device__ __forceinline__ void expect(C top) {
    if (top > powers.highest) {
      move_to(top);
    }
  }
  __device__ __forceinline__ void add(C x) { sum += powers.of(x); }

  /// Makes `powers` those of the group's highest value. All threads of the group must call.
  template <class AnyGroup>
  __device__ void share_highest(const AnyGroup& group) {
    move_to(group.all(powers.highest, [](C a, C b) { return a > b ? a : b; }));
  }
  /// Joins the sums of the group's threads, after share_highest(). A row whose highest value is -inf has NaN as its
  /// sum.
  template <class AnyGroup>
  __device__ void share_sum(const AnyGroup& group) {
    const bool none = powers.highest == -std::numeric_limits<C>::infinity();
    sum = group.all(none ? std::numeric_limits<C>::quiet_NaN() : sum, Plus());
  }
  template <class AnyGroup>
  __device__ void share(const AnyGroup& group) {
    share_highest(group);
    share_sum(group);
  }

 private:
  __device__ void move_to(C top) {
    const Powers<C> to(top);
    sum = sum == C(0) ? C(0) : sum * to.of(powers.shift);  // without values there is nothing to turn
    powers = to;
  }
};

/// The highest element of some packs; NaN is passed over.
template <int U, int V, class T>
__device__ __forceinline__ ComputeType<T> highest_of(const Pack<T, V> (&x)[U][1]) {
  using C = ComputeType<T>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (is_16_bit<T> && V % 2 == 0) {  // two at once, without a conversion
    std::uint32_t pairs[V / 2];
    std::uint32_t top = 0;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      std::memcpy(pairs, &x[u][0], sizeof pairs);
#pragma unroll
      for (int i = 0; i < V / 2; ++i) {
        if (u + i == 0) {
          top = pairs[0];
        } else if constexpr (std::is_same_v<T, Float16>) {
          asm("max.f16x2 %0, %1, %2;" : "=r"(top) : "r"(top), "r"(pairs[i]));
        } else {
          asm("max.bf16x2 %0, %1, %2;" : "=r"(top) : "r"(top), "r"(pairs[i]));
        }
      }
    }
    return std::fmax(C(T::from_bits(static_cast<std::uint16_t>(top))),
                     C(T::from_bits(static_cast<std::uint16_t>(top >> 16))));
  }
#endif
  C top = x[0][0].values[0];
#pragma unroll
  for (int i = 1; i < U * V; ++i) {
    top = std::fmax(top, C(x[i / V][0].values[i % V]));
  }
  return top;
}

/// Finds the Exponentials of one thread's part of a row, for rows::visit().
template <class T>
struct FindExponentials {
  using C = ComputeType<T>;
  Exponentials<C> found;

  template <int U, int V>
  __device__ __forceinline__ void ahead(const Pack<T, V> (&x)[U][1]) {
    found.expect(highest_of(x));
  }
  template <int V>
  __device__ __forceinline__ void operator()(const Pack<T, V> (&x)[1], Pack<T, V>& copy, std::int64_t) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      found.add(x[0].values[v]);
    }
    copy = x[0];
  }
};

/// A row's Exponentials, and the row for a second pass over its powers. With kStaged it stays in shared memory, and in
/// registers if a warp shares it. All threads of the group must call every function.
template <int kBlock, bool kStaged, class T>
struct PowersOfRow {
  using C = ComputeType<T>;
  static constexpr bool kInRegisters = false;
  const T* row;  // where the second pass finds it
  std::int64_t size;
  Exponentials<C> all;

  __device__ __forceinline__ PowersOfRow(const rows::Group<kBlock>& group, const T* from, std::int64_t count)
      : row(from), size(count) {
    T* const copy = kStaged ? rows::stage(from, size, 0) : nullptr;
    FindExponentials<T> find;
    rows::visit<kStaged ? rows::To::shared : rows::To::nothing, 1, T>(group, size, {from}, copy, find);
    all = find.found;
    all.share(group);
    if constexpr (kStaged) {
      row = copy;
    }
  }

  /// Writes the powers times `factor` to a row in memory.
  __device__ __forceinline__ void write(const rows::Group<kBlock>& group, T* to, C factor) const {
    rows::visit<rows::To::memory, 1, T>(group, size, {row}, to,
                                        [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>& result, std::int64_t) {
#pragma unroll
                                          for (int v = 0; v < V; ++v) {
                                            result.values[v] = T(all.powers.of(z[0].values[v]) * factor);
                                          }
                                        });
  }
};

/// Such a row must be one of for_row_size()'s.
template <class T>
struct PowersOfRow<kWarpThreads, false, T> {
  using C = ComputeType<T>;
  static constexpr bool kInRegisters = true;
  static constexpr int V = 16 / static_cast<int>(sizeof(T));
  static constexpr int kPacks = static_cast<int>(rows::kLongestOfLanes) / (kWarpThreads * V);  // of a thread, at most

  int packs;  // in the row
  Exponentials<C> all;
  C powers[kPacks][V];

  __device__ __forceinline__ PowersOfRow(const rows::Group<kWarpThreads>& group, const T* from, std::int64_t size)
      : packs(static_cast<int>(size) / V) {
    const T* mine = from + group.rank * V;
    Pack<T, V> x[kPacks];
    for_each_pack(group, [&](int k) { x[k] = load_pack<V>(mine + k * kWarpThreads * V, true); });
    C top = -std::numeric_limits<C>::infinity();
    for_each_pack(group, [&](int k) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        powers[k][v] = x[k].values[v];
        top = std::fmax(top, powers[k][v]);
      }
    });
    all.expect(top);
    all.share_highest(group);
    for_each_pack(group, [&](int k) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        powers[k][v] = all.powers.of(powers[k][v]);
        all.sum += powers[k][v];
      }
    });
    all.share_sum(group);
  }

  __device__ __forceinline__ void write(const rows::Group<kWarpThreads>& group, T* to, C factor) const {
    T* mine = to + group.rank * V;
#if defined(__CUDA_ARCH__)
    asm("" : "+l"(mine));  // else the compiler computes the address again for each pack
#endif
    for_each_pack(group, [&](int k) {
      Pack<T, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        result.values[v] = T(powers[k][v] * factor);
      }
      store_pack(mine + k * kWarpThreads * V, result);
    });
  }

 private:
  // Calls body(k) for the thread's packs.
  template <class Body>
  __device__ __forceinline__ void for_each_pack(const rows::Group<kWarpThreads>& group, Body&& body) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (group.rank + k * kWarpThreads < packs) {
        body(k);
      }
    }
  }
};

/// Like rows::for_row_size(), but body.operator()<kWarpThreads>() is called for rows of T that fit into registers:
/// neither short nor long rows that are made of packs in all of the arrays.
template <class T, class Body, class... Arrays>
void for_row_size(std::int64_t size, Body&& body, const Arrays*... arrays) {
  if constexpr (sizeof(ComputeType<T>) == sizeof(float)) {
    const bool packs = size % (16 / static_cast<std::int64_t>(sizeof(T))) == 0 && alignment_of(arrays...) % 16 == 0;
    if (packs && rows::lanes_for(size) == kWarpThreads && size <= rows::kLongestOfLanes) {
      return body.template operator()<kWarpThreads>();
    }
  }
  rows::for_row_size(size, body);
}

}  // namespace tandem::inline v0::kernels
