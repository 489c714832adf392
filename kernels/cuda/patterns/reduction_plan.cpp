#include <tandem/kernels/cuda/patterns/reduction_plan.h>

#include <algorithm>

#include <tandem/kernels/cuda/launch/queue.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr int kLine = 128;        // bytes in a line of memory, the best unit to read
constexpr int kReads = 4;         // packs that a thread reads at once
constexpr int kReadsOfPart = 8;   // fewer are not worth joining
constexpr int kBlocksToFill = 8;  // blocks per multiprocessor
constexpr std::int64_t kMostParts = 4096;

std::int64_t pieces(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

bool divisible(const std::int64_t* strides, int count, int by) {
  return std::all_of(strides, strides + count, [=](std::int64_t stride) { return stride % by == 0; });
}

}  // namespace

ReductionPlan::ReductionPlan(const Queue& queue, const ReductionProblem& problem, int packs_of) {
  Loop kept_loop = problem.kept;
  Loop reduced_loop = problem.reduced;
  const int inner_kept = kept_loop.ndim - 1;
  const int inner_reduced = reduced_loop.ndim - 1;
  outputs = kept_loop.numel();
  length = reduced_loop.numel();
  if (outputs == 0) {
    return;
  }
  const std::int64_t row = reduced_loop.sizes[inner_reduced];
  const bool dense_rows = problem.reduced_strides[inner_reduced] == 1 && row > 1;
  by_columns = !dense_rows && problem.kept_strides[inner_kept] == 1 && kept_loop.sizes[inner_kept] > 1;
  const bool aligned = problem.alignment % static_cast<std::uintptr_t>(packs_of * problem.item) == 0;
  std::int64_t reduced_strides[kMaxDims];
  std::copy_n(problem.reduced_strides, reduced_loop.ndim, reduced_strides);

  if (by_columns) {
    columns = kept_loop.sizes[inner_kept];
    if (aligned && columns % packs_of == 0 && divisible(problem.kept_strides, inner_kept, packs_of) &&
        divisible(reduced_strides, reduced_loop.ndim, packs_of)) {
      wide = packs_of;
    }
    columns /= wide;
    kept_loop.ndim = inner_kept;
    across = power_of_2(columns, 32);
    down = power_of_2(pieces(length, kReads), kThreads / across);
    tiles = WideDivider(pieces(columns, across));
    units = pieces(columns, across) * kept_loop.numel();
  } else {
    if (aligned && dense_rows && (reduced_loop.ndim == 1 || row % packs_of == 0) &&
        divisible(problem.kept_strides, kept_loop.ndim, packs_of) &&
        divisible(reduced_strides, inner_reduced, packs_of)) {
      wide = packs_of;
      tail = static_cast<int>(row % wide);
      reduced_loop.sizes[inner_reduced] = row / wide;
      reduced_strides[inner_reduced] = wide;
      length /= wide;
    }
    // A group reads whole lines. It gets more threads if each still has enough to read, or if threads are few.
    const int line = kLine / (wide * problem.item) < 1 ? 1 : kLine / (wide * problem.item);
    across = std::max({power_of_2(length, std::min(line, kThreads)), power_of_2(pieces(length, kReads), kThreads),
                       power_of_2(tail, kThreads)});
    const std::int64_t threads = std::int64_t{queue.gpu().multiprocessors} * kBlocksToFill * kThreads;
    while (across < kThreads && across < length && outputs * across * 2 <= threads) {
      across *= 2;
    }
    units = outputs;
  }
  const int group = across * down;
  const std::int64_t wanted = pieces(units, kThreads / group);
  const std::int64_t fill = std::int64_t{queue.gpu().multiprocessors} * kBlocksToFill;
  blocks = queue.blocks_for(wanted, 1);
  const std::int64_t walking = by_columns ? down : across;
  const std::int64_t most = std::min(kMostParts, length / (walking * kReadsOfPart));
  if (wanted < fill && most > 1) {
    parts = static_cast<int>(std::min(most, fill / wanted));
  }
  chunk = pieces(length, std::max(parts, 1));
  parts = length > 0 ? static_cast<int>(pieces(length, chunk)) : 1;
  kept = Walk(kept_loop, problem.kept_strides);
  reduced = Walk(reduced_loop, reduced_strides);
}

}  // namespace tandem::inline v0::kernels
