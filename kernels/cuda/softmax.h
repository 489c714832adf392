#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/softmax.h>

// The parts that softmax and its gradient share: how they run, and how threads are laid over columns if neighbours in
// memory belong to different rows. A block then has a tile of neighbouring columns, so that its reads are whole lines,
// and several threads for each column. The second pass over a tile finds it in a cache.

namespace tandem::inline v0::kernels {

/// Calls by_rows.operator()<T>(queue) or by_columns, unless cuDNN does the work.
template <class Kernel, class ByRows, class ByColumns>
void run_softmax(Context& context, const Kernel& kernel, ByRows&& by_rows, ByColumns&& by_columns) {
  if (kernel.outer == 0 || kernel.size == 0 || kernel.inner == 0) {
    return;
  }
  const Queue queue(context);
  if (gpu::try_cudnn(queue, kernel)) {
    return;
  }
  for_floating(kernel.dtype, [&]<class T>() {
    kernel.inner == 1 ? by_rows.template operator()<T>(queue) : by_columns.template operator()<T>(queue);
  });
}

namespace columns {

inline constexpr int kThreads = 256;

struct Tiles {
  std::int64_t outer, size, inner;
  std::int64_t of_row;  // tiles in `inner`
  int width;            // columns in a tile, a power of 2
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

  /// Reduces the group's values by op; all of its threads get the result. All threads of the block must call.
  template <class T, class Op>
  __device__ T all(T value, Op op) const {
    __shared__ T memory[kThreads];
    __syncthreads();  // all values of an earlier call have been read
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

// Calls body(offset of a column's first element, its number of elements) for each tile of the block.
template <class Body>
__device__ void for_each_tile(const Tiles& tiles, const Group& group, Body&& body) {
  const std::int64_t count = tiles.outer * tiles.of_row;
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const std::int64_t row = tile / tiles.of_row;
    const std::int64_t column = (tile - row * tiles.of_row) * tiles.width + group.column;
    body(row * tiles.size * tiles.inner + column, column < tiles.inner ? tiles.size : 0);
  }
}

/// Launches kernel(tiles, arguments...), with one block for each tile.
template <class Kernel, class... Parameters, class... Arguments>
void launch(const Queue& queue, const Kernel& kernel, void (*function)(Tiles, Parameters...),
            const Arguments&... arguments) {
  const Tiles tiles = tiles_of(kernel.outer, kernel.size, kernel.inner);
  queue.launch(Kernel::kName, queue.blocks_for(tiles.outer * tiles.of_row, 1), kThreads, 0, function, tiles,
               arguments...);
}

}  // namespace columns

}  // namespace tandem::inline v0::kernels
