#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/norm_formulas.h>

namespace tandem::inline v0::kernels {

/// The weight of a batch in running statistics.
struct Momentum {
  double value = 0;
  const std::int64_t* batches = nullptr;  // number of earlier batches; if given, the weight is 1 / (batches + 1)

  TANDEM_HD double get() const noexcept { return batches == nullptr ? value : 1 / (static_cast<double>(*batches) + 1); }
};

/// out = (in - mean) * rstd * weight + bias for each channel of a dense [outer, channels, inner] input.
/// Training normalises with the mean and the biased variance of the input's values, and updates
///   running = (1 - momentum) * running + momentum * value
/// with the mean and the unbiased variance. An empty input leaves the running statistics as they are. Evaluation
/// normalises with the running statistics; without them, with `statistics` as they are (see BatchNormJoin).
/// weight, bias, running_mean and running_var are [channels], and each may be null.
struct BatchNorm {
  static constexpr const char* kName = "batch_norm";
  DType dtype;
  bool training;
  std::int64_t outer, channels, inner;
  double eps;
  Momentum momentum;
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

/// A batch in parts that several owners hold is normalised in three steps: each part's BatchNormMoments, the
/// BatchNormJoin of all, and a BatchNorm with these statistics.

/// The moments of each channel of a dense [outer, channels, inner] input.
struct BatchNormMoments {
  static constexpr const char* kName = "batch_norm_moments";
  DType dtype;
  std::int64_t outer, channels, inner;
  const void* in;
  Moments<>* moments;  // [channels]
};
void run(OnCpu, Context& context, const BatchNormMoments& kernel);
void run(OnCuda, Context& context, const BatchNormMoments& kernel);

/// The statistics of all parts' values, joined in the order of the parts, and the update of running statistics that
/// BatchNorm makes in training.
struct BatchNormJoin {
  static constexpr const char* kName = "batch_norm_join";
  DType dtype;  // of the running statistics
  std::int64_t parts, channels;
  double eps;
  Momentum momentum;
  const Moments<>* moments;  // [parts, channels]
  void* running_mean;        // may be null, as in BatchNorm
  void* running_var;
  NormStatistics* statistics;  // [channels]
};
void run(OnCpu, Context& context, const BatchNormJoin& kernel);
void run(OnCuda, Context& context, const BatchNormJoin& kernel);

/// Sums over a channel in the backward pass. x is the normalised input.
struct NormSums {
  double grad = 0;
  double product = 0;  // of gradient * x

  [[gnu::always_inline]] TANDEM_HD void add(const NormSums& other) noexcept {
    grad += other.grad;
    product += other.product;
  }
};

/// Gradients of BatchNorm. x is the normalised input. For each channel:
///   weight_grad (+)= sum(grad * x),  bias_grad (+)= sum(grad),
///   in_grad (+)= rstd * weight * (grad - mean(grad) - x * mean(grad * x)) in training, rstd * weight * grad else.
/// A null gradient is not computed. `in` is needed in training and for weight_grad.
/// For a part of a batch, the means are over all parts: one launch gives the part's `sums`, and a second one takes
/// those of all parts for in_grad.
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
  NormSums* sums = nullptr;                 // [channels]: receives the sums over `in`; may be null
  std::int64_t parts = 0;                   // if not 0, the number of parts of the batch
  const NormSums* part_sums = nullptr;      // [parts, channels]
  const Moments<>* part_moments = nullptr;  // [parts, channels]
};
void run(OnCpu, Context& context, const BatchNormGrad& kernel);
void run(OnCuda, Context& context, const BatchNormGrad& kernel);

}  // namespace tandem::inline v0::kernels
