#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tandem/core/float16.h>
#include <tandem/kernels/cuda/patterns/rows.h>

// The highest value of a row and the sum of its exponentials, in one pass over it, for softmax and cross_entropy.

namespace tandem::inline v0::kernels {

/// The highest of some values and the sum of exp(value - highest), found in one pass over them.
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
    const C shift = highest == -std::numeric_limits<C>::infinity() ? C(0) : highest;  // -inf - -inf would be NaN
    C part = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      part += std::exp(x[v] - shift);
    }
    sum += static_cast<double>(part);
  }

  /// Joins the results of all threads of a group. A row whose highest value is -inf has NaN as its sum.
  template <class AnyGroup>
  __device__ Exponentials joined(const AnyGroup& group) const {
    const C top = group.all(highest, [](C a, C b) { return a > b ? a : b; });
    const double mine = highest == top ? sum : sum * static_cast<double>(std::exp(highest - top));
    const bool none = top == -std::numeric_limits<C>::infinity();
    return {top, group.sum(none ? std::numeric_limits<double>::quiet_NaN() : mine)};
  }
};

/// Computes the Exponentials of a row, which is also copied to `copy` if that is not null.
template <class T, int kBlock, class C = ComputeType<T>>
__device__ __forceinline__ Exponentials<C> exponentials(const rows::Group<kBlock>& group, const T* row,
                                                        std::int64_t size, T* copy) {
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
    rows::visit<true, 1, T>(group, size, {row}, copy, add);
  } else {
    rows::visit<false, 1, T>(group, size, {row}, copy, add);
  }
  return found.joined(group);
}

}  // namespace tandem::inline v0::kernels
