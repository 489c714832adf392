#pragma once

#include <cstdint>

#include <tandem/kernels/cross_entropy.h>
#include <tandem/kernels/cross_entropy_formulas.h>
#include <tandem/kernels/cuda/class_losses.h>
#include <tandem/kernels/cuda/patterns/exponentials.h>

// Cross-entropy's forward pass, compiled with and without shares in all classes (kShares) in sources that CMake
// generates (sources.cmake). In f32 it moves 4 bytes per logit, 8 with the gradient: one read of a row gives both its
// highest logit and the sum of exponentials. If a second pass follows (gradient, or shares in all classes), a row of up
// to 1024 classes stays in registers or in the L1 cache, and a longer one in shared memory (up to some 50,000 classes
// in f32, twice as many in 16 bits). Still longer rows are read twice.
// Blocks walk over rows, and each block leaves one partial sum, which the last block joins. The gradient of a mean over
// many rows takes another launch, which first counts the rows that are not ignored.

namespace tandem::inline v0::kernels::gpu {

template <class T>
struct CrossEntropyArguments {
  using C = ComputeType<T>;
  ClassShares<T> target;
  FinishLoss<T> finish;
  const T* logits;
  RowNormalizer<C>* normalizer;
  T* gradient;  // may be null
  std::int64_t rows, classes;
  bool count_here;  // each block counts the rows itself; else *scale has the result
  sums::Parts<CountedSum> parts;
  cuda::Fault* fault;
  BadValue bad;

  __device__ bool counts(std::int64_t row) const { return !target.ignored(row) && !target.outside(row); }
};

// Counts the rows that are not ignored and have a valid class. All threads of a block must call.
template <int kThreads, class T>
__device__ double rows_that_count(const CrossEntropyArguments<T>& by) {
  int mine = 0;
#pragma unroll 1
  for (std::int64_t row = threadIdx.x; row < by.rows; row += kThreads) {
    mine += by.counts(row) ? 1 : 0;
  }
  return block_sum<kThreads>(static_cast<double>(mine));
}

template <class T>
__global__ void __launch_bounds__(rows::kLargeBlock) count_rows(CrossEntropyArguments<T> by) {
  const double count = rows_that_count<rows::kLargeBlock>(by);
  if (threadIdx.x == 0) {
    *by.finish.scale = static_cast<ComputeType<T>>(by.finish.scale_of(count));
  }
}

// Blocks that a multiprocessor must have registers for. Two rows of 50,000 classes fit into its shared memory in 16
// bits, and one in f32.
template <bool kShares, int kBlock, class T>
inline constexpr int kAtOnce = (kShares                                   ? 512
                                : kBlock > kWarpThreads && sizeof(T) == 2 ? 1536
                                                                          : 768) /
                               rows::Group<kBlock>::kThreads;

template <bool kShares, int kBlock, bool kStaged, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, kAtOnce<kShares, kBlock, T>)
    cross_entropy(CrossEntropyArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  constexpr int kThreads = rows::Group<kBlock>::kThreads;
  const rows::Group<kBlock> group(plan.lanes);
  C factor = 1;
  if (!kShares && by.gradient != nullptr && by.finish.mean) {
    factor = by.count_here ? static_cast<C>(by.finish.scale_of(rows_that_count<kThreads>(by))) : *by.finish.scale;
  }
  // Each group's first thread counts. Registers would be taken from the logits.
  __shared__ CountedSum totals[rows::Group<kBlock>::kInWarp ? kThreads : 1];
  CountedSum& total = totals[rows::Group<kBlock>::kInWarp ? threadIdx.x : 0];
  if (group.rank == 0) {
    total = {};
  }
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const bool counts = there && by.counts(row);
    // Logits for registers are read while it is not known yet whether the row counts.
    using Row = PowersOfRow<kBlock, kStaged, T>;
    const std::int64_t classes = Row::kInRegisters || counts ? by.classes : 0;
    const T* x = by.logits + (Row::kInRegisters && !there ? 0 : row) * by.classes;
    const Row powers(group, x, classes);
    const auto& all = powers.all;
    if constexpr (!kShares) {
      if (by.gradient != nullptr) {
        T* gradient = by.gradient + row * by.classes;
        if (counts) {
          powers.write(group, gradient, factor / all.sum);
        }
        group.meet();  // the row's own class gets another value, after this one
        if (there && !counts) {
          rows::clear(group, gradient, by.classes);
        }
      }
    }
    double weighted = 0;
    if constexpr (kShares) {
      const C log_sum = std::log(all.sum);
      rows::visit<rows::To::nothing, 1, T>(group, classes, {powers.row}, static_cast<T*>(nullptr),
                                           [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>&, std::int64_t c) {
#pragma unroll
                                             for (int v = 0; v < V; ++v) {
                                               const C share = by.target.share(row, c + v);
                                               const C minus_log = log_sum - (z[0].values[v] - all.powers.highest);
                                               // A class without a share adds nothing, even if its logit is -inf.
                                               weighted += share == C(0) ? 0.0 : static_cast<double>(share * minus_log);
                                             }
                                           });
      weighted = group.sum(weighted);
    }
    if (there && group.rank == 0) {
      const RowNormalizer<C> normalizer{all.powers.highest, std::log(all.sum)};
      by.normalizer[row] = counts ? normalizer : RowNormalizer<C>{};
      C loss = static_cast<C>(weighted);
      if (!kShares && counts) {
        const std::int64_t own = by.target.index(row);
        const C weight = by.target.weight(own);
        loss = weight == C(0) ? C(0) : weight * (normalizer.log_sum - (x[own] - normalizer.highest));
        if (by.gradient != nullptr) {
          by.gradient[row * by.classes + own] = T((all.powers.of(x[own]) / all.sum - 1) * factor);
        }
      }
      if (by.finish.loss_per_row) {
        by.finish.loss[row] = T(loss);
      }
      if (counts) {
        total = total + CountedSum{static_cast<double>(loss), static_cast<double>(by.target.counts(row))};
      } else if (!by.target.ignored(row)) {
        report_target(by.fault, by.bad, row, by.target.index(row));
      }
    }
  });
  sums::end<kThreads>(group.rank == 0 ? total : CountedSum{}, Plus(), by.parts, by.finish);
}

/// kShares: a row may have shares in all classes; else all of its share is in one class.
template <bool kShares, class T>
void launch_cross_entropy(const Queue& queue, const CrossEntropy& kernel) {
  constexpr std::int64_t kCountedByAll = 4096;  // rows whose indices each block may read
  CrossEntropyArguments<T> by{.target = ClassShares<T>(kernel.target, kernel.classes),
                              .finish = FinishLoss<T>(kernel),
                              .logits = static_cast<const T*>(kernel.logits),
                              .normalizer = static_cast<RowNormalizer<ComputeType<T>>*>(kernel.normalizer),
                              .gradient = static_cast<T*>(kernel.logits_grad),
                              .rows = kernel.rows,
                              .classes = kernel.classes,
                              .count_here = true,
                              .parts = {},
                              .fault = queue.fault(),
                              .bad = cuda::for_notes(kernel.target.bad)};
  const auto launch = [&]<int kBlock>() {
    constexpr int kThreads = rows::Group<kBlock>::kThreads;
    constexpr bool kStaged = !rows::Group<kBlock>::kInWarp;
    const bool twice = kShares || by.gradient != nullptr;
    const rows::Plan plan =
        rows::plan<kBlock, cross_entropy<kShares, kBlock, kStaged, T>, T>(queue, by.rows, by.classes, twice ? 1 : 0);
    by.parts = sums::Parts<CountedSum>(queue, plan.blocks);
    by.count_here = plan.blocks == 1 || by.rows <= kCountedByAll;
    if (!by.count_here && by.gradient != nullptr && kernel.mean) {
      queue.launch(CrossEntropy::kName, 1, rows::kLargeBlock, 0, count_rows<T>, by);
    }
    queue.launch(CrossEntropy::kName, plan.blocks, kThreads, plan.shared,
                 plan.staged ? cross_entropy<kShares, kBlock, kStaged, T> : cross_entropy<kShares, kBlock, false, T>,
                 by, plan);
  };
  if constexpr (kShares) {  // they are multiplied by logits, of which registers would hold only the powers
    rows::for_row_size(kernel.classes, launch);
  } else {
    for_row_size<T>(kernel.classes, launch, by.logits, by.gradient);
  }
}

}  // namespace tandem::inline v0::kernels::gpu
