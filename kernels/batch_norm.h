#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/norm_formulas.h>

namespace tandem::inline v0::kernels {

/// out = (in - mean) * rstd * weight + bias for each channel of a dense [outer, channels, inner] input.
/// Training normalises with the mean and the biased variance of the input's values, and updates
///   running = (1 - momentum) * running + momentum * value
/// with the mean and the unbiased variance. An empty input leaves the running statistics as they are. Evaluation
/// normalises with the running statistics.
/// weight, bias, running_mean and running_var are [channels]. weight and bias may be null; the running statistics may
/// be null only in training.
struct BatchNorm {
  static constexpr const char* kName = "batch_norm";
  DType dtype;
  bool training;
  std::int64_t outer, channels, inner;
  double eps;
  double momentum;
  const void* in;
  const void* weight;
  const void* bias;
  void* running_mean;
  void* running_var;
  NormStatistics* statistics;  // [channels]
  void* out;
};
void run(OnCpu, Context& context, const BatchNorm& kernel);
void run(OnCuda, Context& context, const BatchNorm& kernel);

/// Gradients of BatchNorm. x is the normalised input. For each channel:
///   weight_grad (+)= sum(grad * x),  bias_grad (+)= sum(grad),
///   in_grad (+)= rstd * weight * (grad - mean(grad) - x * mean(grad * x)) in training, rstd * weight * grad else.
/// A null gradient is not computed. `in` is needed in training and for weight_grad.
struct BatchNormGrad {
  static constexpr const char* kName = "batch_norm_grad";
  DType dtype;
  bool training;
  std::int64_t outer, channels, inner;
  const void* grad;
  const void* in;
  const void* weight;  // may be null
  const NormStatistics* statistics;
  void* in_grad;
  Accumulate accumulate_in = Accumulate::no;
  void* weight_grad;
  Accumulate accumulate_weight = Accumulate::no;
  void* bias_grad;
  Accumulate accumulate_bias = Accumulate::no;
};
void run(OnCpu, Context& context, const BatchNormGrad& kernel);
void run(OnCuda, Context& context, const BatchNormGrad& kernel);

}  // namespace tandem::inline v0::kernels
