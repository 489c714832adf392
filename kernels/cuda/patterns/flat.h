#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/pack.h>

// Kernels over dense arrays of one type and length: optimizer, clip, grad_scale and elementwise_loss. A thread reads
// element i of each array, updates it, and writes it back if it can have changed. Elements move in 16-byte packs, each
// value once; a thread has several packs of each array in flight.
//
// A functor has
//   using Element                     type of the arrays' elements
//   static constexpr int kArrays      number of arrays
//   static constexpr unsigned kWritten   bit k: array k is written
//   Element* arrays[kArrays]          null for an absent array
//   bool reads(int k) const           true if array k is present and read
//   auto factors() const              values that a thread keeps over its elements; all threads of a block call it
//   bool idle(const Factors&) const   true if nothing needs to be done
//   void update(Factors&, Element (&x)[kArrays], int64_t i) const   updates element i of each array, in place
// and optionally
//   using Other                       another element type
//   Other* others[2]                  arrays of it: both are read, the second is written; update() has
//                                     `Other (&other)[2]` before i

namespace tandem::inline v0::kernels::flat {

inline constexpr int kThreads = 256;

/// Base of most functors.
template <class T, int kCount, unsigned kMask>
struct Arrays {
  using Element = T;
  static constexpr int kArrays = kCount;
  static constexpr unsigned kWritten = kMask;
  T* arrays[kCount];

  __device__ bool reads(int k) const { return arrays[k] != nullptr; }
  template <class Factors>
  __device__ bool idle(const Factors&) const {
    return false;
  }
};

/// An array that is only read.
template <class T>
T* input(const void* array) noexcept {
  return static_cast<T*>(const_cast<void*>(array));
}

template <class F>
concept HasOther = requires { typename F::Other; };

/// One pack of each array.
template <int V, class F>
struct Values {
  Pack<typename F::Element, V> x[F::kArrays];
};
template <int V, HasOther F>
struct Values<V, F> {
  Pack<typename F::Element, V> x[F::kArrays];
  Pack<typename F::Other, V> other[2];
};

template <int V, class F>
__device__ __forceinline__ void read(const F& f, std::int64_t pack, Values<V, F>& values) {
  using P = Pack<typename F::Element, V>;
#pragma unroll
  for (int k = 0; k < F::kArrays; ++k) {
    values.x[k] = f.reads(k) ? reinterpret_cast<const P*>(f.arrays[k])[pack] : P{};
  }
  if constexpr (HasOther<F>) {
    using O = Pack<typename F::Other, V>;
    values.other[0] = reinterpret_cast<const O*>(f.others[0])[pack];
    values.other[1] = reinterpret_cast<const O*>(f.others[1])[pack];
  }
}

template <int V, class F, class Factors>
__device__ __forceinline__ void update(const F& f, Factors& by, std::int64_t pack, Values<V, F>& values) {
  using T = typename F::Element;
  auto& x = values.x;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    T element[F::kArrays];
#pragma unroll
    for (int k = 0; k < F::kArrays; ++k) {
      element[k] = x[k].values[v];
    }
    if constexpr (HasOther<F>) {
      typename F::Other other[2] = {values.other[0].values[v], values.other[1].values[v]};
      f.update(by, element, other, pack * V + v);
      values.other[1].values[v] = other[1];
    } else {
      f.update(by, element, pack * V + v);
    }
#pragma unroll
    for (int k = 0; k < F::kArrays; ++k) {
      x[k].values[v] = element[k];
    }
  }
#pragma unroll
  for (int k = 0; k < F::kArrays; ++k) {
    if ((F::kWritten >> k & 1) != 0 && f.arrays[k] != nullptr) {
      reinterpret_cast<Pack<T, V>*>(f.arrays[k])[pack] = x[k];
    }
  }
  if constexpr (HasOther<F>) {
    reinterpret_cast<Pack<typename F::Other, V>*>(f.others[1])[pack] = values.other[1];
  }
}

/// Visits all elements, by all threads of a grid.
template <int V, class F, class Factors>
__device__ __forceinline__ void visit(const F& f, Factors& by, std::int64_t count) {
  constexpr int kUnroll = (F::kArrays <= 2 ? 4 : 2) / (V > 4 ? 2 : 1);  // as many as registers have room for
  const std::int64_t packs = count / V;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::int64_t first = thread; first < packs; first += kUnroll * threads) {
    Values<V, F> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {  // all reads come first, so that they are in flight together
      if (first + u * threads < packs) {
        read(f, first + u * threads, values[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * threads < packs) {
        update(f, by, first + u * threads, values[u]);
      }
    }
  }
  if (V > 1 && thread < count - packs * V) {  // elements that do not fill a pack
    Values<1, F> values;
    read(f, packs * V + thread, values);
    update(f, by, packs * V + thread, values);
  }
}

template <int V, class F>
__global__ void __launch_bounds__(kThreads) walk(F f, std::int64_t count) {
  auto by = f.factors();
  if (!f.idle(by)) {
    visit<V>(f, by, count);
  }
}

template <class F>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(typename F::Element));

template <class F>
bool aligned(const F& f) noexcept {
  const auto fits = [](const auto* array) { return aligned_for<kWide<F>>(array); };
  if constexpr (HasOther<F>) {
    if (!std::all_of(std::begin(f.others), std::end(f.others), fits)) {
      return false;
    }
  }
  return std::all_of(std::begin(f.arrays), std::end(f.arrays), fits);
}

/// Applies f to `count` elements.
template <class F>
void for_each(const Queue& queue, const char* name, const F& f, std::int64_t count) {
  if (count <= 0) {
    return;
  }
  const bool wide = aligned(f);
  const std::int64_t packs = wide ? (count + kWide<F> - 1) / kWide<F> : count;
  queue.launch(name, queue.blocks_for(packs, 2 * kThreads), kThreads, 0, wide ? walk<kWide<F>, F> : walk<1, F>, f,
               count);
}

}  // namespace tandem::inline v0::kernels::flat
