#pragma once

#include <cstdint>
#include <limits>

#include <tandem/core/float16.h>
#include <tandem/kernels/cuda/launch/fault.h>
#include <tandem/kernels/cuda/patterns/sums.h>

// Parts that cross_entropy and nll_loss share.

namespace tandem::inline v0::kernels {

/// Sums over rows: the losses, and the rows' contributions to the divisor of the mean.
struct CountedSum {
  double loss = 0;
  double count = 0;

  friend TANDEM_HD CountedSum operator+(CountedSum a, CountedSum b) { return {a.loss + b.loss, a.count + b.count}; }
};

/// The numbers that turn a row of logits into log-probabilities: (x - highest) - log_sum.
template <class C>
struct RowNormalizer {
  C highest = 0;
  C log_sum = 0;
};

/// Leaves a note about an index that is no class. `bad` holds everything but the position and the index.
__device__ inline void report_target(cuda::Fault* fault, const BadValue& bad, std::int64_t row, std::int64_t index) {
  BadValue found = bad;
  found.position = row;
  found.value = index;
  report(fault, found);
}

/// Writes the loss of all rows and its scale, as CrossEntropy describes them.
template <class T>
struct FinishLoss {
  using C = ComputeType<T>;
  bool loss_per_row, mean;
  T* loss;
  C* scale;

  template <class Kernel>
  explicit FinishLoss(const Kernel& kernel)
      : loss_per_row(kernel.loss_per_row),
        mean(kernel.mean),
        loss(static_cast<T*>(kernel.loss)),
        scale(static_cast<C*>(kernel.scale)) {}

  __device__ double scale_of(double count) const {
    return loss_per_row || !mean ? 1 : count == 0 ? std::numeric_limits<double>::quiet_NaN() : 1 / count;
  }
  __device__ void operator()(const CountedSum& total) const {
    const double by = scale_of(total.count);
    if (!loss_per_row) {
      *loss = T(static_cast<C>(total.loss * by));
    }
    *scale = static_cast<C>(by);
  }
};

}  // namespace tandem::inline v0::kernels
