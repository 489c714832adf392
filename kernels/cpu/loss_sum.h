#pragma once

#include <cstdint>
#include <limits>

#include <tandem/core/dtype.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/kernel.h>

// Summation of the rows' losses in the CPU kernels of losses over classes.

namespace tandem::inline v0::kernels::cpu {

/// A row's loss, and the row's contribution to the divisor of the mean.
template <class C>
struct CountedLoss {
  C loss = 0;
  C count = 0;
};

/// Used when rows need no preparation before their losses.
struct NoPreparation {
  void operator()(std::int64_t, std::int64_t) const {}
};

/// Sums the losses of rows. `kernel` has loss_per_row, mean, scale and loss, as CrossEntropy describes them;
/// row_loss(row) gives a CountedLoss. Each `grain` rows are summed in f64, and these sums are added in order.
/// prepare(begin, end) is called before the losses of those rows.
template <class T, class Kernel, class RowLoss, class Prepare = NoPreparation>
void sum_losses(Context& context, const Kernel& kernel, std::int64_t rows, std::int64_t grain, RowLoss&& row_loss,
                Prepare&& prepare = {}) {
  using C = ComputeType<T>;
  struct Partial {
    double loss = 0;
    double count = 0;
  };
  const ScratchScope scope(context.scratch);
  const std::int64_t chunks = (rows + grain - 1) / grain;
  auto* partial = context.scratch.allocate_array<Partial>(static_cast<std::size_t>(chunks));
  core::parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    prepare(begin, end);
    Partial sum;
    for (std::int64_t row = begin; row < end; ++row) {
      const CountedLoss<C> one = row_loss(row);
      if (kernel.loss_per_row) {
        static_cast<T*>(kernel.loss)[row] = T(one.loss);
      }
      sum.loss += static_cast<double>(one.loss);
      sum.count += static_cast<double>(one.count);
    }
    partial[begin / grain] = sum;
  });
  double scale = 1;
  if (!kernel.loss_per_row) {
    Partial total;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      total.loss += partial[chunk].loss;
      total.count += partial[chunk].count;
    }
    if (kernel.mean) {
      scale = total.count == 0 ? std::numeric_limits<double>::quiet_NaN() : 1 / total.count;
    }
    *static_cast<T*>(kernel.loss) = T(static_cast<C>(total.loss * scale));
  }
  *static_cast<C*>(kernel.scale) = static_cast<C>(scale);
}

}  // namespace tandem::inline v0::kernels::cpu
