#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Options of BatchNorm1d and BatchNorm2d.
struct BatchNormOptions {
  double eps = 1e-5;                            // added to the variance
  std::optional<double> momentum = 0.1;         // weight of a batch in the running statistics; none: cumulative average
  bool affine = true;                           // whether there are weight and bias
  bool track_running_stats = true;              // false: evaluation uses the batch's statistics, too
  std::optional<Device> device = std::nullopt;  // device of the parameters and buffers; default: the current device
  DType dtype = DType::f32;                     // type of the parameters and buffers
};

/// (x - mean) / sqrt(var + eps) * weight + bias for each feature of x, which is its second dimension (Ioffe and
/// Szegedy, 2015). Training uses the mean and variance of the batch, and forward() adds them to the running statistics.
/// Evaluation uses the running statistics. The weight starts as 1, the bias as 0. Use BatchNorm1d or BatchNorm2d.
template <class Derived>
class TANDEM_API BatchNorm : public Module<Derived> {
 public:
  /// Throws ValueError in training when the batch has only one value per feature.
  Tensor forward(const Tensor& x) const;

  Parameter weight;            // [num_features]; weight and bias are undefined without affine
  Parameter bias;              // [num_features]
  Buffer running_mean;         // [num_features]; all three buffers are undefined without track_running_stats
  Buffer running_var;          // [num_features], unbiased
  Buffer num_batches_tracked;  // i64, a scalar

 protected:
  /// Throws ConfigError for a negative size. `input` says what forward() takes: least to most dimensions.
  BatchNorm(const char* name, std::int64_t num_features, const BatchNormOptions& options, const char* input, int least,
            int most);

 private:
  std::int64_t num_features_;
  double eps_;
  std::optional<double> momentum_;
  const char* input_;
  int least_dims_, most_dims_;
};

/// BatchNorm of x [batch, features] or [batch, features, length].
class BatchNorm1d : public BatchNorm<BatchNorm1d> {
 public:
  explicit BatchNorm1d(std::int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", num_features, options, "[batch, features] or [batch, features, length]", 2, 3) {}
};

/// BatchNorm of images [batch, features, height, width].
class BatchNorm2d : public BatchNorm<BatchNorm2d> {
 public:
  explicit BatchNorm2d(std::int64_t num_features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", num_features, options, "[batch, features, height, width]", 4, 4) {}
};

extern template class BatchNorm<BatchNorm1d>;
extern template class BatchNorm<BatchNorm2d>;

}  // namespace tandem::inline v0::nn
