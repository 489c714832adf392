#pragma once

#include <cstdint>

#include <tandem/kernels/cuda/block.h>
#include <tandem/kernels/cuda/flat.h>
#include <tandem/kernels/cuda/queue.h>

// Internal: what all blocks of a grid make of their values together. A grid of one block, which is enough for small
// inputs, is done in one launch; of several, each leaves its part in the workspace, and a second kernel of one block
// joins the parts in a fixed order. The number of blocks depends on the input alone, so that all GPUs agree on the
// result.

namespace tandem::inline v0::kernels::sums {

inline constexpr int kThreads = flat::kThreads;
inline constexpr int kMostBlocks = 1024;         // all of them are on an H200 at once
inline constexpr std::int64_t kOneBlock = 8192;  // elements that one block is quick enough for

/// Blocks for `elements`, of which each is to have `per_block` or more.
inline unsigned int blocks_for(std::int64_t elements, std::int64_t per_block) noexcept {
  if (elements <= kOneBlock) {
    return 1;
  }
  const std::int64_t wanted = (elements + per_block - 1) / per_block;
  return static_cast<unsigned int>(wanted < 1 ? 1 : wanted < kMostBlocks ? wanted : kMostBlocks);
}

/// At the end of a kernel whose blocks have `kBlockThreads`: finish(total) by one thread, here or in join().
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

/// The second kernel, where there is more than one part. Part() adds nothing.
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

/// f over `count` elements, as flat::for_each does; then finish() for what Op makes of the `total` of all threads'
/// factors.
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
