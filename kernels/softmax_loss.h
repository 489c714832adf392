#pragma once

#include <cstdint>

#include <tandem/core/bad_value.h>
#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

/// Softmax or log-softmax along the middle dimension of a dense [outer, size, inner] tensor, shifted by the maximum.
struct Softmax {
  static constexpr const char* kName = "softmax";
  DType dtype;
  bool log;
  std::int64_t outer, size, inner;
  const void* in;
  void* out;
};
void run(OnCpu, Context& context, const Softmax& kernel);
void run(OnCuda, Context& context, const Softmax& kernel);

/// softmax:     in_grad (+)= y * (g - sum(g * y));   log-softmax: in_grad (+)= g - exp(y) * sum(g).
struct SoftmaxGrad {
  static constexpr const char* kName = "softmax_grad";
  DType dtype;
  bool log;
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, size, inner;
  const void* grad;
  const void* out;
  void* in_grad;
};
void run(OnCpu, Context& context, const SoftmaxGrad& kernel);
void run(OnCuda, Context& context, const SoftmaxGrad& kernel);

/// What cross-entropy compares a row of logits with: shares q_c = weight_c ((1 - s) p_c + s / classes), s the label
/// smoothing. p is a row of `probabilities`, or 1 for the class in `indices` and 0 for the others.
struct ClassTarget {
  const std::int64_t* indices = nullptr;  // [rows], each in [0, classes) or ignore_index
  const void* probabilities = nullptr;    // [rows, classes], where there are no indices
  const void* weight = nullptr;           // [classes]; 1 where there is none
  std::int64_t ignore_index = -100;       // a row with this index has neither loss nor gradient
  double label_smoothing = 0;
  core::BadValue bad{};  // what is said of an index that is none, but for which one it is
};

/// Cross-entropy of dense logits [rows, classes]: a row's loss is -sum(q * log_softmax(logits)). Writes for the
/// backward pass each row's highest logit and log(sum(exp(logits - highest))), since their sum would lose the digits
/// behind large logits. And either each row's loss (loss_per_row), or the losses' sum times `scale`, which it writes
/// too: 1, or for the mean 1 / the sum of the weights of the classes in `indices` (NaN where that is 0), or 1 / rows
/// for probabilities. Where can_prepare(), it may also write the gradient of the logits for a loss whose gradient is 1.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  DType dtype;
  bool loss_per_row;
  bool mean;
  std::int64_t rows, classes;
  const void* logits;
  ClassTarget target;
  void* normalizer;             // [rows, 2], in the type that `dtype` computes in
  void* scale;                  // [1], in the same type; 1 with loss_per_row
  void* loss;                   // [rows] or [1]
  void* logits_grad = nullptr;  // [rows, classes], or null

  /// Whether the gradient is at hand in the forward pass: the usual case, in which it saves all exponentials of the
  /// backward pass.
  static bool can_prepare(DType dtype, bool loss_per_row, const ClassTarget& target) {
    return dtype == DType::f32 && !loss_per_row && target.indices != nullptr && target.weight == nullptr &&
           target.label_smoothing == 0;
  }
};
void run(OnCpu, Context& context, const CrossEntropy& kernel);
void run(OnCuda, Context& context, const CrossEntropy& kernel);

/// logits_grad (+)= (sum(q) * softmax(logits) - q) * g * scale; g has one element, or one per row.
struct CrossEntropyGrad {
  static constexpr const char* kName = "cross_entropy_grad";
  DType dtype;
  bool loss_per_row;
  Accumulate accumulate = Accumulate::no;
  std::int64_t rows, classes;
  const void* logits;
  ClassTarget target;
  const void* normalizer;  // [rows, 2]
  const void* scale;       // [1]
  const void* grad;
  void* logits_grad;
};
void run(OnCpu, Context& context, const CrossEntropyGrad& kernel);
void run(OnCuda, Context& context, const CrossEntropyGrad& kernel);

/// probabilities_grad (+)= -weight * (1 - label_smoothing) * log_softmax(logits) * g * scale.
struct CrossEntropyTargetGrad {
  static constexpr const char* kName = "cross_entropy_target_grad";
  DType dtype;
  bool loss_per_row;
  Accumulate accumulate = Accumulate::no;
  std::int64_t rows, classes;
  const void* logits;
  ClassTarget target;
  const void* normalizer;  // [rows, 2]
  const void* scale;       // [1]
  const void* grad;
  void* probabilities_grad;
};
void run(OnCpu, Context& context, const CrossEntropyTargetGrad& kernel);
void run(OnCuda, Context& context, const CrossEntropyTargetGrad& kernel);

/// -weight[index] * log_probs[outer, index, inner] for an index per (outer, inner): each, or their sum times `scale`,
/// as in CrossEntropy. An index is in [0, classes) or ignore_index.
struct NegativeLogLikelihood {
  static constexpr const char* kName = "nll_loss";
  DType dtype;
  bool loss_per_row;
  bool mean;
  std::int64_t outer, classes, inner;
  const void* log_probs;
  const std::int64_t* indices;  // [outer, inner]
  const void* weight;           // [classes], or null
  std::int64_t ignore_index;
  void* scale;           // [1], in the type that `dtype` computes in
  void* loss;            // [outer, inner] or [1]
  core::BadValue bad{};  // as ClassTarget::bad
};
void run(OnCpu, Context& context, const NegativeLogLikelihood& kernel);
void run(OnCuda, Context& context, const NegativeLogLikelihood& kernel);

/// log_probs_grad (+)= -weight[index] * g * scale at each index, 0 elsewhere; g has one element, or one per index.
struct NegativeLogLikelihoodGrad {
  static constexpr const char* kName = "nll_loss_grad";
  DType dtype;
  bool loss_per_row;
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, classes, inner;
  const std::int64_t* indices;
  const void* weight;
  std::int64_t ignore_index;
  const void* scale;
  const void* grad;
  void* log_probs_grad;
};
void run(OnCpu, Context& context, const NegativeLogLikelihoodGrad& kernel);
void run(OnCuda, Context& context, const NegativeLogLikelihoodGrad& kernel);

}  // namespace tandem::inline v0::kernels
