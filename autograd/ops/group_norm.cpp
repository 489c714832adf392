#include <limits>

#include <tandem/autograd/ops/norm.h>

// Norms by way of layer_norm(): a group of channels of an image is a row of it.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// A tensor of channels, to be broadcast over [batch, channels, ...].
Tensor as_channels(const Tensor& part, const Tensor& x) {
  Shape sizes = Shape::filled(x.dim(), 1);
  sizes[1] = part.size(0);
  return part.reshape(sizes);
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  const core::MessagePrefix prefix{"group_norm"};
  check_floating("group_norm", x);
  check<ShapeError>(x.dim() >= 2, "{}the input must be [batch, channels, ...], got {}", prefix, x.shape());
  const std::int64_t channels = x.size(1);
  check<ConfigError>(num_groups >= 1 && channels % num_groups == 0,
                     "{}{} channels cannot be divided into {} groups (input {})", prefix, channels, num_groups,
                     x.shape());
  check_part("group_norm", x, "weight", weight, {channels});
  check_part("group_norm", x, "bias", bias, {channels});
  const std::int64_t rows = x.size(0) * num_groups;
  const std::int64_t size = rows > 0 ? x.numel() / rows : 0;
  Tensor y = layer_norm(x.reshape({rows, size}), {size}, {}, {}, eps).reshape(x.shape());
  y = weight.defined() ? y * as_channels(weight, x) : y;
  return bias.defined() ? y + as_channels(bias, x) : y;
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check<ShapeError>(x.dim() >= 3, "{}the input must be [batch, channels, ...] with places, got {}",
                    core::MessagePrefix{"instance_norm"}, x.shape());
  return group_norm(x, x.size(1), weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  const core::MessagePrefix prefix{"rms_norm"};
  check_floating("rms_norm", x);
  const int leading = x.dim() - normalized_shape.ndim();
  bool fits = normalized_shape.ndim() > 0 && leading >= 0;
  Shape dims;
  for (int dim = leading; fits && dim < x.dim(); ++dim) {
    fits = x.shape()[dim] == normalized_shape[dim - leading];
    dims.push_back(dim);
  }
  check<ShapeError>(fits, "{}the last dimensions of the input {} must be the normalized_shape {}", prefix, x.shape(),
                    normalized_shape);
  check_part("rms_norm", x, "weight", weight, normalized_shape);
  // Squares of 16 bits lose too much.
  const Tensor wide = x.dtype() == DType::f64 ? x : x.to(DType::f32);
  const double least =
      x.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Tensor scale = ((wide * wide).mean(dims, true) + eps.value_or(least)).rsqrt();
  const Tensor y = (wide * scale).to(x.dtype());
  return weight.defined() ? y * weight : y;
}

}  // namespace tandem::inline v0
