#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/norm_formulas.h>

namespace tandem::inline v0::kernels {

/// out = (in - mean) * rstd * weight + bias for each row of a dense [rows, size] input. mean and the biased variance
/// are the row's own, and are written for the backward pass. weight and bias are [size]; null means 1 and 0.
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

/// Gradients of LayerNorm. x is the normalised input and h = grad * weight.
///   in_grad (+)= rstd * (h - mean(h) - x * mean(h * x)), with means over each row
///   weight_grad (+)= sum(grad * x),  bias_grad (+)= sum(grad), over all rows
/// A null gradient is not computed. bias_grad alone does not need `in`.
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

}  // namespace tandem::inline v0::kernels
