#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/kernels/cuda/lane_groups.h>
#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/softmax_loss.h>

// Internal: softmax where neighbours in memory belong to different rows. A block has a tile of neighbouring columns, so
// that its reads are whole lines, and several threads for each of them. The second pass over a tile finds it in a
// cache.

namespace tandem::inline v0::kernels::columns {

inline constexpr int kThreads = 256;

struct Tiles {
  std::int64_t outer, size, inner;
  std::int64_t of_row;  // tiles in `inner`
  int width;            // columns of one, a power of 2
};

inline Tiles tiles_of(std::int64_t outer, std::int64_t size, std::int64_t inner) noexcept {
  int width = 1;
  while (width < kThreads && width < inner && (width < kWarpThreads || size * width < 8 * kThreads)) {
    width *= 2;
  }
  return {outer, size, inner, (inner + width - 1) / width, width};
}

/// The threads of a block that share a column.
struct Group {
  int width, column, rank, size;

  __device__ explicit Group(const Tiles& tiles)
      : width(tiles.width),
        column(static_cast<int>(threadIdx.x) % width),
        rank(static_cast<int>(threadIdx.x) / width),
        size(kThreads / width) {}

  /// What op makes of their values, in all of them. All threads of the block call.
  template <class T, class Op>
  __device__ T all(T value, Op op) const {
    __shared__ T memory[kThreads];
    __syncthreads();  // what an earlier call has left there was read
    memory[threadIdx.x] = value;
    for (int half = size / 2; half > 0; half /= 2) {
      __syncthreads();
      if (rank < half) {
        memory[threadIdx.x] = op(memory[threadIdx.x], memory[threadIdx.x + half * width]);
      }
    }
    __syncthreads();
    return memory[column];
  }
  __device__ double sum(double value) const { return all(value, Plus()); }
};

// body(offset of a column's first element, its number of elements) for each tile of the block.
template <class Body>
__device__ void for_each_tile(const Tiles& tiles, const Group& group, Body&& body) {
  const std::int64_t count = tiles.outer * tiles.of_row;
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const std::int64_t row = tile / tiles.of_row;
    const std::int64_t column = (tile - row * tiles.of_row) * tiles.width + group.column;
    body(row * tiles.size * tiles.inner + column, column < tiles.inner ? tiles.size : 0);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) softmax(const T* in, T* out, bool log, Tiles tiles) {
  using C = ComputeType<T>;
  constexpr int kUnroll = 4;
  const Group group(tiles);
  for_each_tile(tiles, group, [&](std::int64_t at, std::int64_t size) {
    rows::Exponentials<C> found;
    for (std::int64_t i = group.rank; i < size; i += kUnroll * group.size) {
      C x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t k = i + u * group.size;
        x[u] = k < size ? C(in[at + k * tiles.inner]) : -std::numeric_limits<C>::infinity();
      }
      found.add(x);
    }
    const auto all = found.joined(group);
    const C shift = log ? static_cast<C>(std::log(all.sum)) : C(0);
    const C factor = log ? C(1) : static_cast<C>(1 / all.sum);
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const C x = C(in[at + i * tiles.inner]) - all.highest;
      out[at + i * tiles.inner] = T(log ? x - shift : std::exp(x) * factor);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_grad(const T* grad, const T* out, T* in_grad, bool log, bool accumulate, Tiles tiles) {
  using C = ComputeType<T>;
  const Group group(tiles);
  for_each_tile(tiles, group, [&](std::int64_t first, std::int64_t size) {
    double mine = 0;
#pragma unroll 4
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const std::int64_t at = first + i * tiles.inner;
      mine += static_cast<double>(log ? C(grad[at]) : grad[at] * out[at]);
    }
    const C sum = static_cast<C>(group.sum(mine));
    for (std::int64_t i = group.rank; i < size; i += group.size) {
      const std::int64_t at = first + i * tiles.inner;
      const C value = log ? grad[at] - std::exp(C(out[at])) * sum : out[at] * (grad[at] - sum);
      in_grad[at] = T(accumulate ? in_grad[at] + value : value);
    }
  });
}

template <class T>
void launch_softmax(const Queue& queue, const Softmax& kernel) {
  const Tiles tiles = tiles_of(kernel.outer, kernel.size, kernel.inner);
  queue.launch(Softmax::kName, queue.blocks_for(tiles.outer * tiles.of_row, 1), kThreads, 0, softmax<T>,
               static_cast<const T*>(kernel.in), static_cast<T*>(kernel.out), kernel.log, tiles);
}

template <class T>
void launch_softmax_grad(const Queue& queue, const SoftmaxGrad& kernel) {
  const Tiles tiles = tiles_of(kernel.outer, kernel.size, kernel.inner);
  queue.launch(SoftmaxGrad::kName, queue.blocks_for(tiles.outer * tiles.of_row, 1), kThreads, 0, softmax_grad<T>,
               static_cast<const T*>(kernel.grad), static_cast<const T*>(kernel.out), static_cast<T*>(kernel.in_grad),
               kernel.log, kernel.accumulate == Accumulate::yes, tiles);
}

}  // namespace tandem::inline v0::kernels::columns
