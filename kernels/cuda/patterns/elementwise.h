#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/geometry.h>
#include <tandem/kernels/cuda/patterns/pack.h>

// Element-wise kernels over operands with any strides. compute_each() is for compare, copy and fill, which state only
// how one element follows from those of the inputs. for_each() walks any functor over a loop, in 16-byte pieces if the
// innermost dimension is dense: pointwise, gather, and the end of a matrix product. (For dense arrays of one length,
// use flat.h.)
//
// A functor of N operands (operand 0 is written, the others are read) has
//   static constexpr int kOperands, kBytes    N, and the size of its largest element
//   const void* data(int i) const             start of operand i
//   int size(int i) const                     bytes of its elements
//   template <int V> struct Values            the values that it reads at V neighbours
//   load<V>(Values<V>&, const int64_t* offsets, const bool* dense)   reads operand i at offsets[i]; V times the same
//                                             element if it is not dense
//   store<V>(const Values<V>&, const int64_t* offsets)

namespace tandem::inline v0::kernels {

namespace elementwise {

inline constexpr int kThreads = 256;
inline constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;  // in one launch, so that 32 bits can count them

/// is[i]: operand i has neighbours along the innermost dimension.
template <int N>
struct Dense {
  bool is[N];
};

// Position i of `count` is V elements of row i / columns, starting at column (i % columns) * V.
template <int V, int kUnroll, class F>
__global__ void __launch_bounds__(kThreads)
    walk(F f, Geometry<F::kOperands> rows, Divider columns, Dense<F::kOperands> dense, std::uint32_t count) {
  constexpr int N = F::kOperands;
  const std::uint32_t threads = gridDim.x * kThreads;
  for (std::uint32_t first = blockIdx.x * kThreads + threadIdx.x; first < count; first += kUnroll * threads) {
    // All reads come first, so that they are in flight together.
    typename F::template Values<V> values[kUnroll];
    std::int64_t offsets[kUnroll][N];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint32_t i = first + u * threads;
      if (i < count) {
        const std::uint32_t row = columns.quotient(i);
        const std::int64_t column = static_cast<std::int64_t>(i - row * columns.divisor()) * V;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          offsets[u][k] = dense.is[k] ? column : 0;
        }
        rows.add_offsets(row, offsets[u]);
        f.template load<V>(values[u], offsets[u], dense.is);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * threads < count) {
        f.template store<V>(values[u], offsets[u]);
      }
    }
  }
}

// True if the functor may take V elements at once: columns fill packs, and every pack is aligned.
template <int V, class F>
bool fits(const F& f, const Loop& loop, const std::int64_t* const (&strides)[F::kOperands]) {
  const int inner = loop.ndim - 1;
  if (loop.sizes[inner] % V != 0) {
    return false;
  }
  for (int k = 0; k < F::kOperands; ++k) {
    const std::int64_t stride = strides[k][inner];
    if (stride != 1) {
      if (stride != 0 || k == 0) {
        return false;
      }
      continue;
    }
    if (reinterpret_cast<std::uintptr_t>(f.data(k)) % static_cast<std::uintptr_t>(V * f.size(k)) != 0) {
      return false;
    }
    for (int dim = 0; dim < inner; ++dim) {
      if (strides[k][dim] % V != 0) {
        return false;
      }
    }
  }
  return true;
}

template <int V, class F>
void launch_walk(const Queue& queue, const char* name, const F& f, const Loop& loop,
                 const std::int64_t* const (&strides)[F::kOperands]) {
  constexpr int kUnroll = F::kOperands <= 2 && V <= 8 ? 4 : 2;  // as many as registers have room for
  Dense<F::kOperands> dense{};
  Loop rows = loop;
  const int inner = loop.ndim - 1;
  std::int64_t columns = 1;
  if constexpr (V > 1) {
    columns = loop.sizes[inner] / V;
    rows.ndim = inner;
    for (int k = 0; k < F::kOperands; ++k) {
      dense.is[k] = strides[k][inner] == 1;
    }
  }
  const std::int64_t count = rows.numel() * columns;
  queue.launch(name, queue.blocks_for(count, kThreads * kUnroll), kThreads, 0, walk<V, kUnroll, F>, f,
               Geometry<F::kOperands>(rows, strides), Divider(static_cast<std::uint32_t>(columns)), dense,
               static_cast<std::uint32_t>(count));
}

}  // namespace elementwise

/// Applies f to a loop that is not empty; strides[i] belong to operand i. `f.advanced(offsets)` is f with its operands
/// moved by the offsets.
template <class F>
void for_each(const Queue& queue, const char* name, const F& f, const Loop& loop,
              const std::int64_t* const (&strides)[F::kOperands]) {
  if (loop.numel() > elementwise::kMostPositions) {
    // Cuts along the outermost dimension. Its size is more than 1, so both halves are smaller.
    const std::int64_t half = loop.sizes[0] / 2 / 64 * 64 == 0 ? loop.sizes[0] / 2 : loop.sizes[0] / 2 / 64 * 64;
    Loop part = loop;
    part.sizes[0] = half;
    for_each(queue, name, f, part, strides);
    std::int64_t offsets[F::kOperands];
    for (int k = 0; k < F::kOperands; ++k) {
      offsets[k] = half * strides[k][0];
    }
    part.sizes[0] = loop.sizes[0] - half;
    for_each(queue, name, f.advanced(offsets), part, strides);
    return;
  }
  constexpr int kWide = 16 / F::kBytes;
  if (kWide > 1 && elementwise::fits<kWide>(f, loop, strides)) {
    elementwise::launch_walk<kWide>(queue, name, f, loop, strides);
  } else {
    elementwise::launch_walk<1>(queue, name, f, loop, strides);
  }
}

namespace elementwise {

/// A pack of each operand.
template <int V, class... T>
struct Packs {};
template <int V, class T, class... Rest>
struct Packs<V, T, Rest...> {
  Pack<T, V> first;
  Packs<V, Rest...> rest;
};

/// The functor of compute_each().
template <class Compute, class Out, class... In>
struct Each {
  static constexpr int kOperands = 1 + sizeof...(In);
  static constexpr int kBytes = static_cast<int>(std::max({sizeof(Out), sizeof(In)...}));
  static constexpr bool kAccumulates = requires(Compute c) { c.accumulate; };
  template <int V>
  using Values = Packs<V, Out, In...>;

  Compute compute;
  void* operands[kOperands];

  const void* data(int i) const { return operands[i]; }
  int size(int i) const {
    constexpr int kSizes[] = {sizeof(Out), sizeof(In)...};
    return kSizes[i];
  }
  Each advanced(const std::int64_t* offsets) const {
    Each moved = *this;
    for (int k = 0; k < kOperands; ++k) {
      moved.operands[k] = static_cast<std::byte*>(operands[k]) + offsets[k] * size(k);
    }
    return moved;
  }

  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    load_inputs<1>(values.rest, offsets, dense);
    if constexpr (kAccumulates) {
      if (compute.accumulate) {
        values.first = load_pack<V>(static_cast<const Out*>(operands[0]) + offsets[0], true);
      }
    }
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (kAccumulates) {
        result.values[i] = at(i, values.rest, values.first.values[i]);
      } else {
        result.values[i] = at(i, values.rest);
      }
    }
    *reinterpret_cast<Pack<Out, V>*>(static_cast<Out*>(operands[0]) + offsets[0]) = result;
  }

 private:
  template <int k, int V, class T, class... Rest>
  __device__ void load_inputs(Packs<V, T, Rest...>& inputs, const std::int64_t* offsets, const bool* dense) const {
    inputs.first = load_pack<V>(static_cast<const T*>(operands[k]) + offsets[k], dense[k]);
    load_inputs<k + 1>(inputs.rest, offsets, dense);
  }
  template <int k, int V>
  __device__ void load_inputs(Packs<V>&, const std::int64_t*, const bool*) const {}

  // The result for neighbour i.
  template <int V, class T, class... Rest, class... Known>
  __device__ Out at(int i, const Packs<V, T, Rest...>& inputs, const Known&... known) const {
    return at(i, inputs.rest, known..., inputs.first.values[i]);
  }
  template <int V, class... Known>
  __device__ Out at(int, const Packs<V>&, const Known&... known) const {
    return compute(known...);
  }
};

}  // namespace elementwise

/// Writes compute(inputs...) to each element of `out`; `loop` is not empty. A Compute with a member `accumulate` gets
/// the old element of `out` first, which is there only if `accumulate` is set.
template <class Out, class... In, class Compute, class... Inputs>
void compute_each(const Queue& queue, const char* name, const Compute& compute, const Loop& loop, const Operand& out,
                  const Inputs&... inputs) {
  for_each(queue, name, elementwise::Each<Compute, Out, In...>{compute, {out.data, inputs.data...}}, loop,
           {out.strides, inputs.strides...});
}

}  // namespace tandem::inline v0::kernels
