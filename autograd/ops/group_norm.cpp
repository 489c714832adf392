#include <limits>

#include <tandem/autograd/ops/norm.h>
#include <tandem/autograd/spatial.h>

// Norms by way of layer_norm(): a group of channels of an image is a row of it.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// 16 bits are widened, so that only the result is rounded.
Tensor widened(const Tensor& x) { return x.dtype() == DType::f64 ? x : x.to(DType::f32); }

// A tensor of channels, to be broadcast over [batch, channels, ...].
Tensor as_channels(const Tensor& part, const Tensor& x) {
  Shape sizes = Shape::filled(x.dim(), 1);
  sizes[1] = part.size(0);
  return widened(part).reshape(sizes);
}

Tensor normalize(const char* op, const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias,
                 double eps) {
  if (raises({&x, &weight, &bias})) [[unlikely]] {
    return normalize(op, raised(x), num_groups, raised(weight), raised(bias), eps);
  }
  const std::int64_t channels = x.size(1);
  check_part(op, x, "weight", weight, {channels});
  check_part(op, x, "bias", bias, {channels});
  const std::int64_t rows = x.size(0) * num_groups;
  const std::int64_t size = rows > 0 ? x.numel() / rows : 0;
  Tensor y = layer_norm(widened(x).reshape({rows, size}), {size}, {}, {}, eps).reshape(x.shape());
  y = weight.defined() ? y * as_channels(weight, x) : y;
  y = bias.defined() ? y + as_channels(bias, x) : y;
  return y.to(x.dtype());
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  const core::MessagePrefix prefix{"group_norm"};
  check_floating("group_norm", x);
  check<ShapeError>(x.dim() >= 2, "{}the input must be [batch, channels, ...], got {}", prefix, x.shape());
  check<ConfigError>(num_groups >= 1 && x.size(1) % num_groups == 0,
                     "{}{} channels cannot be divided into {} groups (input {})", prefix, x.size(1), num_groups,
                     x.shape());
  return normalize("group_norm", x, num_groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_floating("instance_norm", x);
  check<ShapeError>(x.dim() >= 3, "{}the input must be [batch, channels, ...] with places, got {}",
                    core::MessagePrefix{"instance_norm"}, x.shape());
  return normalize("instance_norm", x, x.size(1), weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  if (raises({&x, &weight})) [[unlikely]] {
    return rms_norm(raised(x), normalized_shape, raised(weight), eps);
  }
  const core::MessagePrefix prefix{"rms_norm"};
  check_floating("rms_norm", x);
  const int leading = x.dim() - normalized_shape.ndim();
  bool fits = normalized_shape.ndim() > 0 && leading >= 0;
  Shape dims;
  for (int dim = leading; fits && dim < x.dim(); ++dim) {
    fits = x.shape()[dim] == normalized_shape[dim - leading];
    dims.push_back(dim);
  }
  check<ShapeError>(fits, "{}the last dimensions of the input {} must be the normalized_shape {} [TDM-E101]", prefix,
                    x.shape(), normalized_shape);
  check_part("rms_norm", x, "weight", weight, normalized_shape);
  const Tensor wide = widened(x);
  const double least =
      x.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const Tensor y = wide * ((wide * wide).mean(dims, true) + eps.value_or(least)).rsqrt();
  return (weight.defined() ? y * widened(weight) : y).to(x.dtype());
}

}  // namespace tandem::inline v0
