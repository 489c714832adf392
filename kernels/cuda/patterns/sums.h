#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/flat.h>

// One total over all elements, for clip, elementwise_loss, cross_entropy and nll_loss. A small input takes one block
// and one launch. With several blocks, each leaves its part in the workspace, and a second kernel of one block joins
// the parts in a fixed order. The number of blocks depends on the input alone, so that all GPUs agree on the result.

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

/// Ends a kernel whose blocks have `kBlockThreads` threads. One thread calls finish(total), here or in join().
template <int kBlockThreads, class Part, class Op, class Finish>
__device__ __forceinline__ void end(Part part, Op op, Part* parts, const Finish& finish) {
  part = block_reduce<kBlockThreads>(part, op);
  if (threadIdx.x == 0) {
    if (gridDim.x == 1) {
      finish(part);
    } else {
      parts[blockIdx.x] = part;
    }
  }
}

template <class Part, class Op, class Finish>
__global__ void __launch_bounds__(kThreads) join_kernel(const Part* parts, int count, Op op, Finish finish) {
  Part part{};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    part = op(part, parts[i]);
  }
  part = block_reduce<kThreads>(part, op);
  if (threadIdx.x == 0) {
    finish(part);
  }
}

/// Launches the second kernel if there is more than one part. Part() must add nothing.
template <class Op, class Part, class Finish>
void join(const Queue& queue, const char* name, const Part* parts, unsigned int count, const Finish& finish) {
  if (count > 1) {
    queue.launch(name, 1, kThreads, 0, join_kernel<Part, Op, Finish>, parts, static_cast<int>(count), Op(), finish);
  }
}

template <int V, class Op, class F, class Finish>
__global__ void __launch_bounds__(kThreads) walk(F f, std::int64_t count, double* parts, Finish finish) {
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
  double* parts = blocks > 1 ? queue.workspace_array<double>(blocks) : nullptr;
  queue.launch(name, blocks, kThreads, 0, wide ? walk<V, Op, F, Finish> : walk<1, Op, F, Finish>, f, count, parts,
               finish);
  join<Op>(queue, name, parts, blocks, finish);
}

}  // namespace tandem::inline v0::kernels::sums
