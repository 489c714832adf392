#pragma once

#include <cstdint>
#include <optional>

#include <tandem/autograd/spatial.h>
#include <tandem/nn/module.h>

// Norms that do not depend on the batch, as modules: group_norm(), instance_norm() and rms_norm() of
// autograd/spatial.h. Weights start as 1, biases as 0.

namespace tandem::inline v0::nn {

/// Options of GroupNorm.
struct GroupNormOptions {
  double eps = 1e-5;                            // added to the variance
  bool affine = true;                           // whether there are weight and bias
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// Each group of channels of a sample with mean 0 and variance 1, times the weight, plus the bias.
class TANDEM_API GroupNorm : public Module<GroupNorm> {
 public:
  /// Throws ConfigError unless the groups divide the channels.
  GroupNorm(std::int64_t num_groups, std::int64_t num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& x) const;

  Parameter weight;  // [num_channels]; both are undefined without affine
  Parameter bias;    // [num_channels]

 private:
  std::int64_t num_groups_, num_channels_;
  double eps_;
};

/// Options of InstanceNorm2d.
struct InstanceNorm2dOptions {
  double eps = 1e-5;                            // added to the variance
  bool affine = false;                          // whether there are weight and bias
  std::optional<Device> device = std::nullopt;  // of the parameters; default: the current device
  DType dtype = DType::f32;                     // of the parameters
};

/// GroupNorm with a group for each channel, of images [batch, channels, height, width].
class TANDEM_API InstanceNorm2d : public Module<InstanceNorm2d> {
 public:
  /// Throws ConfigError for a negative size.
  explicit InstanceNorm2d(std::int64_t num_features, const InstanceNorm2dOptions& options = {});
  Tensor forward(const Tensor& x) const;

  Parameter weight;  // [num_features]; both are undefined without affine
  Parameter bias;    // [num_features]

 private:
  std::int64_t num_features_;
  double eps_;
};

/// Options of RMSNorm.
struct RMSNormOptions {
  std::optional<double> eps = std::nullopt;     // default: see rms_norm()
  bool elementwise_affine = true;               // whether there is a weight
  std::optional<Device> device = std::nullopt;  // of the weight; default: the current device
  DType dtype = DType::f32;                     // of the weight
};

/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions, whose sizes are normalized_shape.
class TANDEM_API RMSNorm : public Module<RMSNorm> {
 public:
  explicit RMSNorm(const Shape& normalized_shape, const RMSNormOptions& options = {});
  /// Over the last dimension.
  explicit RMSNorm(std::int64_t normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) const;

  Parameter weight;  // normalized_shape; undefined without elementwise_affine

 private:
  Shape normalized_shape_;
  std::optional<double> eps_;
};

}  // namespace tandem::inline v0::nn
