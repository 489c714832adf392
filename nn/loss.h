#pragma once

#include <cstdint>

#include <tandem/nn/functional.h>
#include <tandem/nn/module.h>

// Losses as modules: each keeps the options of a function of autograd/ops.h. Class weights and positive weights are
// buffers: they move and convert with the module and are part of its state dict.

namespace tandem::inline v0::nn {

/// Mean (or sum, or each element, by `reduction`) of (input - target)^2. Shapes must be equal.
class MSELoss : public Module<MSELoss> {
 public:
  explicit MSELoss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& input, const Tensor& target) const { return mse_loss(input, target, reduction_); }

 private:
  Reduction reduction_;
};

/// Mean (or sum, or each element, by `reduction`) of |input - target|.
class L1Loss : public Module<L1Loss> {
 public:
  explicit L1Loss(Reduction reduction = Reduction::mean) : reduction_(reduction) {}
  Tensor forward(const Tensor& input, const Tensor& target) const { return l1_loss(input, target, reduction_); }

 private:
  Reduction reduction_;
};

/// Quadratic below beta, linear above: see smooth_l1_loss.
class SmoothL1Loss : public Module<SmoothL1Loss> {
 public:
  explicit SmoothL1Loss(Reduction reduction = Reduction::mean, double beta = 1) : reduction_(reduction), beta_(beta) {}
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return smooth_l1_loss(input, target, reduction_, beta_);
  }

 private:
  Reduction reduction_;
  double beta_;
};

/// Quadratic up to delta, linear beyond: see huber_loss.
class HuberLoss : public Module<HuberLoss> {
 public:
  explicit HuberLoss(Reduction reduction = Reduction::mean, double delta = 1) : reduction_(reduction), delta_(delta) {}
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return huber_loss(input, target, reduction_, delta_);
  }

 private:
  Reduction reduction_;
  double delta_;
};

/// Binary cross-entropy of probabilities.
class TANDEM_API BCELoss : public Module<BCELoss> {
 public:
  explicit BCELoss(const BCELossOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& target) const;

  Buffer weight;  // undefined without weights

 private:
  Reduction reduction_;
};

/// A sigmoid and binary cross-entropy in one.
class TANDEM_API BCEWithLogitsLoss : public Module<BCEWithLogitsLoss> {
 public:
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options = {});
  Tensor forward(const Tensor& logits, const Tensor& target) const;

  Buffer weight;      // undefined without weights
  Buffer pos_weight;  // undefined without positive weights

 private:
  Reduction reduction_;
};

/// Negative log-likelihood of class indices, given log-probabilities.
class TANDEM_API NLLLoss : public Module<NLLLoss> {
 public:
  explicit NLLLoss(const NLLLossOptions& options = {});
  Tensor forward(const Tensor& log_probs, const Tensor& target) const;

  Buffer weight;  // undefined without weights

 private:
  std::int64_t ignore_index_;
  Reduction reduction_;
};

/// Softmax and negative log-likelihood in one. Takes logits [rows, classes, ...] and class indices or probabilities.
class TANDEM_API CrossEntropyLoss : public Module<CrossEntropyLoss> {
 public:
  explicit CrossEntropyLoss(const CrossEntropyLossOptions& options = {});
  Tensor forward(const Tensor& logits, const Tensor& target) const;

  Buffer weight;  // undefined without weights

 private:
  std::int64_t ignore_index_;
  Reduction reduction_;
  double label_smoothing_;
};

}  // namespace tandem::inline v0::nn
