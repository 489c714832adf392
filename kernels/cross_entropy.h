#pragma once

#include <cstdint>

#include <tandem/core/bad_value.h>
#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels {

/// Target of a row of logits in cross-entropy: shares q_c = weight_c ((1 - s) p_c + s / classes), where s is the label
/// smoothing. p is a row of `probabilities`, or 1 for the class in `indices` and 0 for the others.
struct ClassTarget {
  const std::int64_t* indices = nullptr;  // [rows], each in [0, classes) or ignore_index
  const void* probabilities = nullptr;    // [rows, classes]; used when indices is null
  const void* weight = nullptr;           // [classes], or null for all 1
  std::int64_t ignore_index = -100;       // a row with this index has neither loss nor gradient
  double label_smoothing = 0;
  core::BadValue bad{};  // describes a bad index; the kernel fills in which one
};

/// Cross-entropy of dense logits [rows, classes]; the loss of a row is -sum(q * log_softmax(logits)).
/// For the backward pass, the kernel writes each row's highest logit and log(sum(exp(logits - highest))). Their sum
/// alone would lose digits when the logits are large.
/// With loss_per_row the kernel writes each row's loss, else the losses' sum times `scale`. The kernel also writes
/// `scale`: 1 for a sum, 1 / rows for a mean with probabilities, and for a mean with indices 1 / the sum of the weights
/// of their classes (NaN if that sum is 0).
/// Where can_prepare() allows it, the kernel may also write the gradient of the logits for a loss whose gradient is 1.
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

  /// True if the forward pass can write the gradient cheaply. This is the usual case, and saves the backward pass all
  /// its exponentials. f16 is an exception: the gradient of a loss that a GradScaler will scale would underflow before
  /// it is scaled. bf16 has the range for that; its gradient is rounded once more. On a CPU, only f32 gains.
  static bool can_prepare(Device device, DType dtype, bool loss_per_row, const ClassTarget& target) {
    const bool type = device.type == DeviceType::cuda ? dtype != DType::f16 : dtype == DType::f32;
    return type && !loss_per_row && target.indices != nullptr && target.weight == nullptr &&
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

}  // namespace tandem::inline v0::kernels
