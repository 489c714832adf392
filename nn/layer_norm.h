#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// What a LayerNorm can be made with.
struct LayerNormOptions {
  double eps = 1e-5;                            // added to the variance
  bool elementwise_affine = true;               // whether there is a weight
  bool bias = true;                             // and with it a bias
  std::optional<Device> device = std::nullopt;  // of its parameters; default: the current device
  DType dtype = DType::f32;                     // of its parameters
};

/// (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the last dimensions of x, whose sizes are
/// normalized_shape (Ba et al., 2016). The weight starts as 1, the bias as 0.
class TANDEM_API LayerNorm : public Module<LayerNorm> {
 public:
  /// Throws ConfigError without dimensions, or for a negative size.
  explicit LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  /// Over the last dimension.
  explicit LayerNorm(std::int64_t normalized_shape, const LayerNormOptions& options = {});

  Tensor forward(const Tensor& x) const;

  Parameter weight;  // normalized_shape; undefined without elementwise_affine
  Parameter bias;    // the same; undefined without bias, too

 private:
  Shape normalized_shape_;
  double eps_;
};

}  // namespace tandem::inline v0::nn
