#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

/// What values are normalised with, per row of a layer norm or channel of a batch norm. In f64 for every type: values
/// that are close together around a large mean keep their digits.
struct NormStatistics {
  double mean;  // of the values
  double rstd;  // 1 / sqrt(variance + eps)
};

/// out = (in - mean) * rstd * weight + bias for each row of a dense [rows, size] input, with the row's own mean and
/// (biased) variance, which are written for the backward pass. weight and bias are [size]; null means 1 and 0.
struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  DType dtype;
  std::int64_t rows, size;
  double eps;
  const void* in;
  const void* weight;
  const void* bias;
  NormStatistics* statistics;  // [rows]
  void* out;
};
void run(OnCpu, Context& context, const LayerNorm& kernel);
void run(OnCuda, Context& context, const LayerNorm& kernel);

/// With x the normalised input and h = grad * weight: in_grad (+)= rstd * (h - mean(h) - x * mean(h * x)) over each
/// row; weight_grad (+)= sum(grad * x) and bias_grad (+)= sum(grad) over all rows. What is null is not computed; `in`
/// is not needed for bias_grad alone.
struct LayerNormGrad {
  static constexpr const char* kName = "layer_norm_grad";
  DType dtype;
  std::int64_t rows, size;
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
void run(OnCpu, Context& context, const LayerNormGrad& kernel);
void run(OnCuda, Context& context, const LayerNormGrad& kernel);

/// out = (in - mean) * rstd * weight + bias for each channel of a dense [outer, channels, inner] input. In training
/// with the mean and the biased variance of the values, and running = (1 - momentum) * running + momentum * value, the
/// variance unbiased there; without values it stays as it is. Else with the running ones. All but in, statistics and
/// out are [channels] and may be null, the running ones only in training.
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

/// With x the normalised input, over each channel: weight_grad (+)= sum(grad * x), bias_grad (+)= sum(grad), and
/// in_grad (+)= rstd * weight * (grad - mean(grad) - x * mean(grad * x)) in training, rstd * weight * grad else. What
/// is null is not computed; `in` is needed in training and for weight_grad.
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
