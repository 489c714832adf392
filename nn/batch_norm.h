#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Options of BatchNorm1d.
struct BatchNormOptions {
  double eps = 1e-5;                            // added to the variance
  std::optional<double> momentum = 0.1;         // weight of a batch in the running statistics; none: cumulative average
  bool affine = true;                           // whether there are weight and bias
  bool track_running_stats = true;              // false: evaluation uses the batch's statistics, too
  std::optional<Device> device = std::nullopt;  // device of the parameters and buffers; default: the current device
  DType dtype = DType::f32;                     // type of the parameters and buffers
};

/// (x - mean) / sqrt(var + eps) * weight + bias for each feature of x [batch, features] or [batch, features, length]
/// (Ioffe and Szegedy, 2015). Training uses the mean and variance of the batch, and forward() adds them to the running
/// statistics. Evaluation uses the running statistics. The weight starts as 1, the bias as 0.
class TANDEM_API BatchNorm1d : public Module<BatchNorm1d> {
 public:
  /// Throws ConfigError for a negative size.
  explicit BatchNorm1d(std::int64_t num_features, const BatchNormOptions& options = {});

  /// Throws ValueError in training when the batch has only one value per feature.
  Tensor forward(const Tensor& x) const;

  Parameter weight;            // [num_features]; weight and bias are undefined without affine
  Parameter bias;              // [num_features]
  Buffer running_mean;         // [num_features]; all three buffers are undefined without track_running_stats
  Buffer running_var;          // [num_features], unbiased
  Buffer num_batches_tracked;  // i64, a scalar

 private:
  std::int64_t num_features_;
  double eps_;
  std::optional<double> momentum_;
};

}  // namespace tandem::inline v0::nn
