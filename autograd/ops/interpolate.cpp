#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

// The numbers 0 ... size - 1, for places in the precision that PyTorch computes them in.
Tensor numbers(std::int64_t size, const Tensor& like) {
  const DType dtype = like.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return arange(size, {.dtype = dtype, .device = like.device()});
}

// old / new, rounded as PyTorch does.
double ratio(double from, double to, const Tensor& like) {
  return like.dtype() == DType::f64 ? from / to
                                    : static_cast<double>(static_cast<float>(from) / static_cast<float>(to));
}

Tensor nearest(const Tensor& x, int dim, std::int64_t size) {
  const std::int64_t from = x.size(dim);
  const double scale = ratio(static_cast<double>(from), static_cast<double>(size), x);
  const Tensor places = (numbers(size, x) * scale).floor().clamp(0, static_cast<double>(from - 1));
  return x.index_select(dim, places.to(DType::i64));
}

// Between the two elements around each place.
Tensor linear_along(const Tensor& x, int dim, std::int64_t size, bool align_corners) {
  const std::int64_t from = x.size(dim);
  const auto last = static_cast<double>(from - 1);
  Tensor places;
  if (align_corners) {
    places = numbers(size, x) * (size > 1 ? ratio(last, static_cast<double>(size - 1), x) : 0.0);
  } else {
    const double scale = ratio(static_cast<double>(from), static_cast<double>(size), x);
    places = ((numbers(size, x) + 0.5) * scale - 0.5).clamp(0, last);
  }
  const Tensor lower = places.floor().clamp(0, last);
  Shape sizes = Shape::filled(x.dim(), 1);
  sizes[dim] = size;
  const Tensor weight = (places - lower).reshape(sizes);
  const Tensor first = x.index_select(dim, lower.to(DType::i64));
  const Tensor second = x.index_select(dim, (lower + 1.0).clamp(0, last).to(DType::i64));
  return first * (1.0 - weight) + second * weight;
}

}  // namespace

Tensor interpolate(const Tensor& x, Size2d size, InterpolateMode mode, bool align_corners) {
  const core::MessagePrefix prefix{"interpolate"};
  check_floating("interpolate", x);
  check<ShapeError>(x.dim() == 4 && x.size(2) > 0 && x.size(3) > 0,
                    "{}the input must be [batch, channels, height, width] with elements, got {}", prefix, x.shape());
  check<ConfigError>(size.height >= 1 && size.width >= 1, "{}the size must be at least 1, got {}", prefix,
                     to_string(size));
  check<ConfigError>(!align_corners || mode == InterpolateMode::bilinear,
                     "{}align_corners is an option of bilinear interpolation", prefix);
  if (mode == InterpolateMode::nearest) {
    return nearest(nearest(x, 2, size.height), 3, size.width);
  }
  // 16 bits are widened, so that only the result is rounded.
  const Tensor wide = x.dtype() == DType::f64 ? x : x.to(DType::f32);
  return linear_along(linear_along(wide, 2, size.height, align_corners), 3, size.width, align_corners).to(x.dtype());
}

}  // namespace tandem::inline v0
