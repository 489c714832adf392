#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/pack.h>

// Kernels over dense elements that need their positions: arange and linspace (fill), random, dropout and combine. A
// thread handles pieces of 16 bytes of the output. Only the last piece may be shorter. Pieces are moved element by
// element only if they are short or memory is not aligned.
//
// A functor has
//   static constexpr int kPiece                        elements in a piece
//   piece(int64_t first, int n, bool whole) const      handles n elements; `first` is a multiple of kPiece;
//                                                      `whole`: n is kPiece, and the piece may be moved as packs

namespace tandem::inline v0::kernels {

inline constexpr int kPieceThreads = 256;

/// V elements from `from` on, of which only the first n exist.
template <int V, class T>
__device__ __forceinline__ Pack<T, V> load_piece(const T* from, int n, bool whole) {
  if (whole) {
    return *reinterpret_cast<const Pack<T, V>*>(from);
  }
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i < n) {
      pack.values[i] = from[i];
    }
  }
  return pack;
}

template <int V, class T>
__device__ __forceinline__ void store_piece(T* to, const Pack<T, V>& pack, int n, bool whole) {
  if (whole) {
    *reinterpret_cast<Pack<T, V>*>(to) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if (i < n) {
      to[i] = pack.values[i];
    }
  }
}

template <class F>
__global__ void __launch_bounds__(kPieceThreads) walk_dense(F f, std::int64_t count, bool aligned) {
  constexpr std::int64_t kPiece = F::kPiece;
  const std::int64_t step = std::int64_t{gridDim.x} * kPieceThreads * kPiece;
  std::int64_t first = (std::int64_t{blockIdx.x} * kPieceThreads + threadIdx.x) * kPiece;
  for (; first < count; first += step) {
    const bool whole = count - first >= kPiece;
    f.piece(first, whole ? static_cast<int>(kPiece) : static_cast<int>(count - first), whole && aligned);
  }
}

/// Applies f to `count` elements, which may be 0. `aligned` says that packs may be used.
template <class F>
void for_each_piece(const Queue& queue, const char* name, const F& f, std::int64_t count, bool aligned) {
  if (count <= 0) {
    return;
  }
  queue.launch(name, queue.blocks_for(count, kPieceThreads * F::kPiece), kPieceThreads, 0, walk_dense<F>, f, count,
               aligned);
}

}  // namespace tandem::inline v0::kernels
