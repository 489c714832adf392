#pragma once

#include <cstdint>
#include <memory>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

// Internal: batch norm of a batch whose parts lie with several owners, such as the ranks of a training.

namespace tandem::inline v0::autograd {

/// Hands tensors from each owner of a part to all others. All make the same calls in the same order.
class BatchExchange {
 public:
  virtual ~BatchExchange() = default;
  /// Number of parts.
  virtual std::int64_t parts() const = 0;
  /// Sets all[p] to the `mine` of part p. `all` is [parts(), sizes of mine...].
  virtual void gather(const Tensor& all, const Tensor& mine) = 0;
};

/// Options of the layers' batch_norm() in training.
struct BatchNormTraining {
  double momentum = 0;                                // weight of a batch in the running statistics
  Tensor batches = {};                                // if defined, the weight is 1 / (batches + 1); i64, a scalar
  std::shared_ptr<BatchExchange> exchange = nullptr;  // if given, x is this owner's part of the batch
};

/// batch_norm() in training. Without values of its own, a part still takes part in the exchange.
TANDEM_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight, const Tensor& bias, double eps, const BatchNormTraining& training);

}  // namespace tandem::inline v0::autograd
