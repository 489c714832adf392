#include <tandem/nn/layer_norm.h>

#include <algorithm>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

LayerNorm::LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options)
    : normalized_shape_(normalized_shape), eps_(options.eps) {
  check<ConfigError>(
      !normalized_shape.empty() && *std::min_element(normalized_shape.begin(), normalized_shape.end()) >= 0,
      "LayerNorm: the normalized_shape must have dimensions, none negative, got {}", normalized_shape);
  describe(fmt::format("{}, eps={}, elementwise_affine={}, bias={}", normalized_shape, options.eps,
                       options.elementwise_affine, options.bias));
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  if (options.elementwise_affine) {
    weight = parameter("weight", ones(normalized_shape, made));
    if (options.bias) {
      bias = parameter("bias", zeros(normalized_shape, made));
    }
  }
}

LayerNorm::LayerNorm(std::int64_t normalized_shape, const LayerNormOptions& options)
    : LayerNorm(Shape{normalized_shape}, options) {}

Tensor LayerNorm::forward(const Tensor& x) const {
  check_registered();
  return layer_norm(x, normalized_shape_, weight, bias, eps_);
}

}  // namespace tandem::inline v0::nn
