#include <algorithm>
#include <vector>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor positions(const std::vector<std::int64_t>& of, const Tensor& like) { return from_data(of).to(like.device()); }

// The element of a dimension that position i shows, which may lie outside of [0, size).
std::int64_t element(std::int64_t i, std::int64_t size, PadMode mode) {
  if (mode == PadMode::replicate) {
    return std::clamp<std::int64_t>(i, 0, size - 1);
  }
  if (mode == PadMode::circular) {
    return (i + size) % size;
  }
  return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
}

Tensor pad_with(const Tensor& x, int dim, std::int64_t before, std::int64_t behind, double value) {
  Tensor inside = x.slice(dim, std::max<std::int64_t>(-before, 0), x.size(dim) - std::max<std::int64_t>(-behind, 0));
  std::vector<Tensor> parts{inside};
  const auto part = [&](std::int64_t length) {
    Shape sizes = inside.shape();
    sizes[dim] = length;
    return full(sizes, value, {.dtype = x.dtype(), .device = x.device()});
  };
  if (before > 0) {
    parts.insert(parts.begin(), part(before));
  }
  if (behind > 0) {
    parts.push_back(part(behind));
  }
  return parts.size() == 1 ? inside : cat(parts, dim);
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& sizes, PadMode mode, double value) {
  const core::MessagePrefix prefix{"pad"};
  check<ConfigError>(sizes.size() % 2 == 0 && sizes.size() / 2 <= static_cast<std::size_t>(x.dim()),
                     "{}expected a number before and one behind for some of the last dimensions of {}, got {} numbers",
                     prefix, x.shape(), sizes.size());
  Tensor padded = x;
  for (std::size_t i = 0; i < sizes.size(); i += 2) {
    const int dim = x.dim() - 1 - static_cast<int>(i / 2);
    const std::int64_t before = sizes[i];
    const std::int64_t behind = sizes[i + 1];
    const std::int64_t size = x.size(dim);
    if (before == 0 && behind == 0) {
      continue;
    }
    if (mode == PadMode::constant) {
      check<ShapeError>(size + before + behind >= 0 && before >= -size && behind >= -size,
                        "{}{} and {} take more from a dimension than its {} elements", prefix, before, behind, size);
      padded = pad_with(padded, dim, before, behind, value);
      continue;
    }
    const std::int64_t most = mode == PadMode::reflect ? size - 1 : mode == PadMode::circular ? size : INT64_MAX;
    check<ShapeError>(
        before >= 0 && behind >= 0 && before <= most && behind <= most && size > 0,
        "{}in this mode a dimension of {} elements can be padded by 0 to {}, got {} and {}", prefix, size,
        mode == PadMode::replicate ? "any number of elements" : fmt::format("{}", std::max<std::int64_t>(most, 0)),
        before, behind);
    std::vector<std::int64_t> of;
    for (std::int64_t p = -before; p < size + behind; ++p) {
      of.push_back(element(p, size, mode));
    }
    padded = padded.index_select(dim, positions(of, x));
  }
  return padded;
}

Tensor unfold(const Tensor& x, Size2d kernel_size, Size2d dilation, Size2d padding, Size2d stride) {
  const core::MessagePrefix prefix{"unfold"};
  check<ShapeError>(x.dim() == 4, "{}the input must be [batch, channels, height, width], got {}", prefix, x.shape());
  check<ConfigError>(kernel_size.height >= 1 && kernel_size.width >= 1 && dilation.height >= 1 && dilation.width >= 1 &&
                         stride.height >= 1 && stride.width >= 1 && padding.height >= 0 && padding.width >= 0,
                     "{}kernel_size, dilation and stride must be at least 1 and the padding 0", prefix);
  const Tensor padded = pad(x, {padding.width, padding.width, padding.height, padding.height});
  const std::int64_t high = padded.size(2) - dilation.height * (kernel_size.height - 1);
  const std::int64_t wide = padded.size(3) - dilation.width * (kernel_size.width - 1);
  check<ShapeError>(high >= 1 && wide >= 1, "{}a window of {} is larger than the padded input {}", prefix,
                    to_string(kernel_size), padded.shape());
  std::vector<Tensor> taps;
  for (std::int64_t y = 0; y < kernel_size.height; ++y) {
    for (std::int64_t x_tap = 0; x_tap < kernel_size.width; ++x_tap) {
      const std::int64_t top = y * dilation.height;
      const std::int64_t left = x_tap * dilation.width;
      taps.push_back(padded.slice(2, top, top + high, stride.height).slice(3, left, left + wide, stride.width));
    }
  }
  const Tensor all = stack(taps, 2);  // [batch, channels, taps, height, width]
  return all.reshape({x.size(0), x.size(1) * kernel_size.height * kernel_size.width, all.size(3) * all.size(4)});
}

}  // namespace tandem::inline v0
