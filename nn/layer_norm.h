#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Options of LayerNorm.
struct LayerNormOptions {
  double eps = 1e-5;                            // added to the variance
  bool elementwise_affine = true;               // whether there is a weight
  bool bias = true;                             // whether there is a bias too; needs elementwise_affine
  std::optional<Device> device = std::nullopt;  // device of the parameters; default: the current device
  DType dtype = DType::f32;                     // type of the parameters
};

/// (x - mean) / sqrt(var + eps) * weight + bias. Mean and variance are taken over the last dimensions of x, whose sizes
/// must be normalized_shape (Ba et al., 2016). The weight starts as 1, the bias as 0.
class TANDEM_API LayerNorm : public Module<LayerNorm> {
 public:
  /// Throws ConfigError for an empty shape or a negative size.
  explicit LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  /// Normalises over the last dimension.
  explicit LayerNorm(std::int64_t normalized_shape, const LayerNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  Parameter weight;  // normalized_shape; undefined without elementwise_affine
  Parameter bias;    // normalized_shape; undefined without elementwise_affine or without bias

 private:
  Shape normalized_shape_;
  double eps_;
};

}  // namespace tandem::inline v0::nn
