#pragma once

#include <cstdint>

#include <tandem/kernels/class_shares.h>
#include <tandem/kernels/cuda/class_losses.h>
#include <tandem/kernels/cuda/exponentials.h>
#include <tandem/kernels/softmax_loss.h>

// Internal: cross-entropy's forward pass. In f32 4 bytes per logit, 8 with the gradient: a row is read once, for its
// highest logit and the sum of exponentials together. Where a second pass follows (gradient, or shares in all classes),
// it stays in shared memory (up to some 50,000 classes in f32) or, where lanes share it, in the first cache; longer
// rows are read twice. Blocks walk over rows, and each leaves one partial sum: one launch for small inputs, else two,
// and a third where the gradient of a mean has to know how many rows count before it is written, and there are many.

namespace tandem::inline v0::kernels::gpu {

/// What turns a row of logits into log-probabilities: (x - highest) - log_sum.
template <class C>
struct RowNormalizer {
  C highest = 0;
  C log_sum = 0;
};

template <class T>
struct CrossEntropyArguments {
  using C = ComputeType<T>;
  ClassShares<T> target;
  FinishLoss<T> finish;
  const T* logits;
  RowNormalizer<C>* normalizer;
  T* gradient;  // or null
  std::int64_t rows, classes;
  bool count_here;  // every block finds out how many rows count; else *scale says it
  CountedSum* parts;
  cuda::Fault* fault;
  BadValue bad;

  __device__ bool counts(std::int64_t row) const { return !target.ignored(row) && !target.outside(row); }
};

// Rows that count, by all threads of a block.
template <int kThreads, class T>
__device__ double rows_that_count(const CrossEntropyArguments<T>& by) {
  int mine = 0;
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

template <bool kShares, int kBlock, class T>
__global__ void __launch_bounds__(rows::Group<kBlock>::kThreads, rows::Group<kBlock>::kBlocks)
    cross_entropy(CrossEntropyArguments<T> by, rows::Plan plan) {
  using C = ComputeType<T>;
  constexpr int kThreads = rows::Group<kBlock>::kThreads;
  const rows::Group<kBlock> group(plan.lanes);
  C factor = 1;
  if (!kShares && by.gradient != nullptr && by.finish.mean) {
    factor = by.count_here ? static_cast<C>(by.finish.scale_of(rows_that_count<kThreads>(by))) : *by.finish.scale;
  }
  CountedSum total;
  group.for_each(by.rows, [&](std::int64_t row, bool there) {
    const bool counts = there && by.counts(row);
    const std::int64_t own = counts && by.target.one_class() ? by.target.index(row) : -1;
    const std::int64_t classes = counts ? by.classes : 0;
    const T* x = by.logits + row * by.classes;
    T* copy = plan.staged ? rows::stage(x, by.classes, 0) : nullptr;
    const auto all = exponentials(group, x, classes, copy);
    const C log_sum = static_cast<C>(std::log(all.sum));
    const T* again = plan.staged ? copy : x;
    C loss = 0;
    if constexpr (kShares) {
      double sum = 0;
      rows::visit<false, 1, T>(group, classes, {again}, static_cast<T*>(nullptr),
                               [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>&, std::int64_t c) {
#pragma unroll
                                 for (int v = 0; v < V; ++v) {
                                   const C share = by.target.share(row, c + v);
                                   const C minus_log = log_sum - (z[0].values[v] - all.highest);
                                   // A class without a share adds nothing, even if its logit is -inf.
                                   sum += share == C(0) ? 0.0 : static_cast<double>(share * minus_log);
                                 }
                               });
      loss = static_cast<C>(group.sum(sum));
    } else if (counts) {
      const C weight = by.target.weight(own);
      loss = weight == C(0) ? C(0) : weight * (log_sum - (x[own] - all.highest));
    }
    if (there && group.rank == 0) {
      by.normalizer[row] = counts ? RowNormalizer<C>{all.highest, log_sum} : RowNormalizer<C>{};
      if (by.finish.loss_per_row) {
        by.finish.loss[row] = T(loss);
      }
      if (counts) {
        total = total + CountedSum{static_cast<double>(loss), static_cast<double>(by.target.counts(row))};
      } else if (!by.target.ignored(row)) {
        report_target(by.fault, by.bad, row, by.target.index(row));
      }
    }
    if constexpr (!kShares) {
      if (by.gradient != nullptr) {
        const C inverse = static_cast<C>(1 / all.sum);
        rows::visit<true, 1, T>(group, there ? by.classes : 0, {again}, by.gradient + row * by.classes,
                                [&]<int V>(const Pack<T, V>(&z)[1], Pack<T, V>& result, std::int64_t c) {
#pragma unroll
                                  for (int v = 0; v < V; ++v) {
                                    const C p = std::exp(z[0].values[v] - all.highest) * inverse;
                                    result.values[v] = T(counts ? (p - (c + v == own ? C(1) : C(0))) * factor : C(0));
                                  }
                                });
      }
    }
  });
  sums::end<kThreads>(total, Plus(), by.parts, by.finish);
}

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
                              .parts = nullptr,
                              .fault = queue.fault(),
                              .bad = cuda::for_notes(kernel.target.bad)};
  rows::for_row_size(kernel.classes, [&]<int kBlock>() {
    constexpr int kThreads = rows::Group<kBlock>::kThreads;
    const bool twice = kShares || by.gradient != nullptr;
    rows::Plan plan =
        rows::plan<kBlock, cross_entropy<kShares, kBlock, T>, T>(queue, by.rows, by.classes, twice ? 1 : 0);
    if (plan.blocks == 2) {
      plan.blocks = 1;  // sooner done than a second launch
    }
    if (plan.blocks > 1) {
      by.parts = queue.workspace_array<CountedSum>(plan.blocks);
      by.count_here = by.rows <= kCountedByAll;
      if (!by.count_here && by.gradient != nullptr && kernel.mean) {
        queue.launch(CrossEntropy::kName, 1, rows::kLargeBlock, 0, count_rows<T>, by);
      }
    }
    queue.launch(CrossEntropy::kName, plan.blocks, kThreads, plan.shared, cross_entropy<kShares, kBlock, T>, by, plan);
    sums::join<Plus>(queue, CrossEntropy::kName, by.parts, plan.blocks, by.finish);
  });
}

/// Where all of a row's share is in one class, and where it need not be: two sources.
void launch_one_class(const Queue& queue, const CrossEntropy& kernel);
void launch_shares(const Queue& queue, const CrossEntropy& kernel);

}  // namespace tandem::inline v0::kernels::gpu
