#include <algorithm>
#include <cmath>
#include <vector>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor nearest(const Tensor& x, int dim, std::int64_t size) {
  const std::int64_t from = x.size(dim);
  std::vector<std::int64_t> elements;
  for (std::int64_t i = 0; i < size; ++i) {
    elements.push_back(i * from / size);
  }
  return x.index_select(dim, from_data(elements).to(x.device()));
}

// Between the two elements around each place.
Tensor linear_along(const Tensor& x, int dim, std::int64_t size, bool align_corners) {
  const std::int64_t from = x.size(dim);
  std::vector<std::int64_t> lower, upper;
  std::vector<double> weights;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<double>(i);
    const double place = align_corners
                             ? size > 1 ? at * static_cast<double>(from - 1) / static_cast<double>(size - 1) : 0
                             : std::max(0.0, (at + 0.5) * static_cast<double>(from) / static_cast<double>(size) - 0.5);
    const auto below = std::min(static_cast<std::int64_t>(std::floor(place)), from - 1);
    lower.push_back(below);
    upper.push_back(std::min(below + 1, from - 1));
    weights.push_back(place - static_cast<double>(below));
  }
  Shape sizes = Shape::filled(x.dim(), 1);
  sizes[dim] = size;
  const Tensor weight = from_data(weights).to(x.dtype()).to(x.device()).reshape(sizes);
  const Tensor first = x.index_select(dim, from_data(lower).to(x.device()));
  const Tensor second = x.index_select(dim, from_data(upper).to(x.device()));
  return first + (second - first) * weight;
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
  const auto along = [&](const Tensor& t, int dim, std::int64_t wanted) {
    if (wanted == t.size(dim)) {
      return t;
    }
    return mode == InterpolateMode::nearest ? nearest(t, dim, wanted) : linear_along(t, dim, wanted, align_corners);
  };
  return along(along(x, 2, size.height), 3, size.width);
}

}  // namespace tandem::inline v0
