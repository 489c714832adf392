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

  /// Joins the results of all threads of a group. A row whose highest value is -inf has NaN as its sum.
  template <class AnyGroup>
  __device__ Exponentials joined(const AnyGroup& group) const {
    Exponentials all = *this;
    all.move_to(group.all(powers.highest, [](C a, C b) { return a > b ? a : b; }));
    const bool none = all.powers.highest == -std::numeric_limits<C>::infinity();
    all.sum = group.all(none ? std::numeric_limits<C>::quiet_NaN() : all.sum, Plus());
    return all;
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
        } else if constexpr (std::is_same_v<T, Half>) {
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

/// Computes the Exponentials of a row, which with kCopy is also copied to `copy`.
template <bool kCopy, class T, int kBlock>
__device__ __forceinline__ auto exponentials(const rows::Group<kBlock>& group, const T* row, std::int64_t size,
                                             T* copy) {
  FindExponentials<T> find;
  rows::visit<kCopy ? rows::To::shared : rows::To::nothing, 1, T>(group, size, {row}, copy, find);
  return find.found.joined(group);
}

}  // namespace tandem::inline v0::kernels
