#include <tandem/nn/group_norm.h>

#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

namespace {

void check_features(const Tensor& x, std::int64_t features) {
  check<ShapeError>(x.dim() < 2 || x.size(1) == features, "{}input {} has {} channels, layer expects {} [TDM-E101]",
                    core::MessagePrefix{""}, x.shape(), x.dim() < 2 ? 0 : x.size(1), features);
}

}  // namespace

GroupNorm::GroupNorm(std::int64_t num_groups, std::int64_t num_channels, const GroupNormOptions& options)
    : num_groups_(num_groups), num_channels_(num_channels), eps_(options.eps) {
  check<ConfigError>(num_groups >= 1 && num_channels >= 0 && num_channels % num_groups == 0,
                     "GroupNorm: {} channels cannot be divided into {} groups", num_channels, num_groups);
  describe(fmt::format("{}, {}, eps={}, affine={}", num_groups, num_channels, options.eps, options.affine));
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  if (options.affine) {
    weight = parameter("weight", ones({num_channels}, made));
    bias = parameter("bias", zeros({num_channels}, made));
  }
}

Tensor GroupNorm::forward(const Tensor& x) const {
  check_registered();
  check_features(x, num_channels_);
  return group_norm(x, num_groups_, weight, bias, eps_);
}

InstanceNorm2d::InstanceNorm2d(std::int64_t num_features, const InstanceNorm2dOptions& options)
    : num_features_(num_features), eps_(options.eps) {
  check<ConfigError>(num_features >= 0, "InstanceNorm2d: num_features must not be negative, got {}", num_features);
  describe(fmt::format("{}, eps={}, affine={}", num_features, options.eps, options.affine));
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  if (options.affine) {
    weight = parameter("weight", ones({num_features}, made));
    bias = parameter("bias", zeros({num_features}, made));
  }
}

Tensor InstanceNorm2d::forward(const Tensor& x) const {
  check_registered();
  check<ShapeError>(x.dim() == 4, "{}the input must be [batch, channels, height, width], got {}",
                    core::MessagePrefix{""}, x.shape());
  check_features(x, num_features_);
  return instance_norm(x, weight, bias, eps_);
}

RMSNorm::RMSNorm(const Shape& normalized_shape, const RMSNormOptions& options)
    : normalized_shape_(normalized_shape), eps_(options.eps) {
  check<ConfigError>(!normalized_shape.empty(), "RMSNorm: the normalized_shape must have dimensions, got {}",
                     normalized_shape);
  describe(fmt::format("{}, eps={}, elementwise_affine={}", normalized_shape,
                       options.eps ? fmt::format("{}", *options.eps) : "none", options.elementwise_affine));
  if (options.elementwise_affine) {
    weight = parameter("weight", ones(normalized_shape, {.dtype = options.dtype, .device = options.device}));
  }
}

RMSNorm::RMSNorm(std::int64_t normalized_shape, const RMSNormOptions& options)
    : RMSNorm(Shape{normalized_shape}, options) {}

Tensor RMSNorm::forward(const Tensor& x) const {
  check_registered();
  return rms_norm(x, normalized_shape_, weight, eps_);
}

}  // namespace tandem::inline v0::nn
