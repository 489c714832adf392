#pragma once

#include <cstdint>

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

/// Cross-entropy of dense logits [rows, classes] against class indices in range. Writes each row's highest logit and
/// log(sum(exp(logits - highest))) for the backward pass: their sum would lose the digits behind large logits. And
/// either each row's loss (loss_per_row) or the losses' sum times `scale`.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  DType dtype;
  bool loss_per_row;
  double scale;
  std::int64_t rows, classes;
  const void* logits;
  const std::int64_t* targets;
  void* normalizer;  // [rows, 2], in the type that `dtype` computes in
  void* loss;        // [rows] or [1]
};
void run(OnCpu, Context& context, const CrossEntropy& kernel);

/// logits_grad (+)= (softmax(logits) - one_hot(target)) * g * scale; g has one element, or one per row.
struct CrossEntropyGrad {
  static constexpr const char* kName = "cross_entropy_grad";
  DType dtype;
  bool loss_per_row;
  Accumulate accumulate = Accumulate::no;
  double scale;
  std::int64_t rows, classes;
  const void* logits;
  const std::int64_t* targets;
  const void* normalizer;  // [rows, 2]
  const void* grad;
  void* logits_grad;
};
void run(OnCpu, Context& context, const CrossEntropyGrad& kernel);

/// (a - b)^2 over `count` dense elements: each (loss_per_element), or their sum times `scale`.
struct SquaredError {
  static constexpr const char* kName = "squared_error";
  DType dtype;
  bool loss_per_element;
  double scale;
  std::int64_t count;
  const void* a;
  const void* b;
  void* loss;
};
void run(OnCpu, Context& context, const SquaredError& kernel);

/// a_grad (+)= 2 (a - b) * g * scale; g has one element, or one per element. For b's gradient swap a and b.
struct SquaredErrorGrad {
  static constexpr const char* kName = "squared_error_grad";
  DType dtype;
  bool loss_per_element;
  Accumulate accumulate = Accumulate::no;
  double scale;
  std::int64_t count;
  const void* a;
  const void* b;
  const void* grad;
  void* a_grad;
};
void run(OnCpu, Context& context, const SquaredErrorGrad& kernel);

}  // namespace tandem::inline v0::kernels
