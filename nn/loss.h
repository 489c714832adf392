#pragma once

#include <tandem/nn/functional.h>
#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Mean (or sum, or each) of (input - target)^2; shapes must be equal.
class MSELoss : public Module<MSELoss> {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& input, const Tensor& target) const { return mse_loss(input, target, reduction_); }

 private:
  Reduction reduction_;
};

/// Softmax and negative log-likelihood in one: logits [rows, classes], i64 targets [rows].
class CrossEntropyLoss : public Module<CrossEntropyLoss> {
 public:
  explicit CrossEntropyLoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& logits, const Tensor& target) const { return cross_entropy(logits, target, reduction_); }

 private:
  Reduction reduction_;
};

}  // namespace tandem::inline v0::nn
