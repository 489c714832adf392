#include <tandem/nn/loss.h>

namespace tandem::inline v0::nn {

BCELoss::BCELoss(const BCELossOptions& options) : reduction_(options.reduction) {
  if (options.weight.defined()) {
    weight = buffer("weight", options.weight);
  }
}

Tensor BCELoss::forward(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy(input, target, {.weight = weight, .reduction = reduction_});
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options) : reduction_(options.reduction) {
  if (options.weight.defined()) {
    weight = buffer("weight", options.weight);
  }
  if (options.pos_weight.defined()) {
    pos_weight = buffer("pos_weight", options.pos_weight);
  }
}

Tensor BCEWithLogitsLoss::forward(const Tensor& logits, const Tensor& target) const {
  return binary_cross_entropy_with_logits(logits, target,
                                          {.weight = weight, .reduction = reduction_, .pos_weight = pos_weight});
}

NLLLoss::NLLLoss(const NLLLossOptions& options) : ignore_index_(options.ignore_index), reduction_(options.reduction) {
  if (options.weight.defined()) {
    weight = buffer("weight", options.weight);
  }
}

Tensor NLLLoss::forward(const Tensor& log_probs, const Tensor& target) const {
  return nll_loss(log_probs, target, {.weight = weight, .ignore_index = ignore_index_, .reduction = reduction_});
}

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyLossOptions& options)
    : ignore_index_(options.ignore_index), reduction_(options.reduction), label_smoothing_(options.label_smoothing) {
  if (options.weight.defined()) {
    weight = buffer("weight", options.weight);
  }
}

Tensor CrossEntropyLoss::forward(const Tensor& logits, const Tensor& target) const {
  return cross_entropy(
      logits, target,
      {.weight = weight, .ignore_index = ignore_index_, .reduction = reduction_, .label_smoothing = label_smoothing_});
}

}  // namespace tandem::inline v0::nn
