#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/flat.h>
#include <tandem/kernels/cuda/patterns/last_block.h>

// One total over all elements, for clip, elementwise_loss, cross_entropy and nll_loss. With several blocks, each leaves
// its part in the workspace, and the last block to end joins the parts in a fixed order. The number of blocks depends
// on the input alone, so that all GPUs agree on the result.

namespace tandem::inline v0::kernels::sums {

inline constexpr int kThreads = flat::kThreads;
inline constexpr int kMostBlocks = 1024;         // an H200 runs all of them at once
inline constexpr std::int64_t kOneBlock = 8192;  // up to this many elements, one block is fast enough

/// Number of blocks for `elements`: each block gets up to `per_block` of them, or more if that takes over kMostBlocks.
inline unsigned int blocks_for(std::int64_t elements, std::int64_t per_block) noexcept {
  if (elements <= kOneBlock) {
    return 1;
  }
  const std::int64_t wanted = (elements + per_block - 1) / per_block;
  return static_cast<unsigned int>(wanted < 1 ? 1 : wanted < kMostBlocks ? wanted : kMostBlocks);
}

/// Where the blocks of a launch leave their parts.
template <class Part>
struct Parts {
  Part* parts = nullptr;
  unsigned int* ticket = nullptr;

  Parts() = default;
  Parts(const Queue& queue, unsigned int blocks) {
    if (blocks > 1) {
      parts = queue.workspace_array<Part>(blocks);
      ticket = queue.tickets();
    }
  }
};

/// Ends a kernel whose blocks have `kBlockThreads` threads: one thread calls finish(total). Part() must add nothing.
template <int kBlockThreads, class Part, class Op, class Finish>
__device__ __forceinline__ void end(Part part, Op op, const Parts<Part>& left, const Finish& finish) {
  part = block_reduce<kBlockThreads>(part, op);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      left.parts[blockIdx.x] = part;
    }
    if (!is_last_block(left.ticket, gridDim.x)) {
      return;
    }
    part = Part{};
#pragma unroll 1
    for (unsigned int i = threadIdx.x; i < gridDim.x; i += kBlockThreads) {
      part = op(part, left.parts[i]);
    }
    part = block_reduce<kBlockThreads>(part, op);
  }
  if (threadIdx.x == 0) {
    finish(part);
  }
}

template <int V, class Op, class F, class Finish>
__global__ void __launch_bounds__(kThreads) walk(F f, std::int64_t count, Parts<double> parts, Finish finish) {
  auto by = f.factors();
  flat::visit<V>(f, by, count);
  end<kThreads>(by.total, Op(), parts, finish);
}

/// Applies f to `count` elements, like flat::for_each. Then calls finish() with the `total` of all threads' factors,
/// combined by Op.
template <class Op, class F, class Finish>
void of_elements(const Queue& queue, const char* name, const F& f, std::int64_t count, const Finish& finish) {
  constexpr int V = flat::kWide<F>;
  const bool wide = flat::aligned(f);
  const unsigned int blocks = blocks_for(count, kThreads * 2 * (wide ? V : 1));
  queue.launch(name, blocks, kThreads, 0, wide ? walk<V, Op, F, Finish> : walk<1, Op, F, Finish>, f, count,
               Parts<double>(queue, blocks), finish);
}

}  // namespace tandem::inline v0::kernels::sums
