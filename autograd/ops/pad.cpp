#include <algorithm>
#include <limits>
#include <vector>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/spatial.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

using namespace autograd;

namespace {

constexpr std::int64_t kLargestPadding = std::numeric_limits<std::int32_t>::max();

// The elements that a dimension shows when it is padded, as indices. f64 holds every position.
Tensor elements(std::int64_t before, std::int64_t behind, std::int64_t size, PadMode mode, Device device) {
  const auto last = static_cast<double>(size - 1);
  const Tensor at =
      arange(size + before + behind, {.dtype = DType::f64, .device = device}) - static_cast<double>(before);
  switch (mode) {
    case PadMode::replicate: return at.clamp(0, last).to(DType::i64);
    case PadMode::circular:
      return (at - (at / static_cast<double>(size)).floor() * static_cast<double>(size)).to(DType::i64);
    default: return (last - (last - at.abs()).abs()).to(DType::i64);
  }
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
  bool copies = false;
  for (std::size_t i = 0; i < sizes.size(); i += 2) {
    const int dim = x.dim() - 1 - static_cast<int>(i / 2);
    const std::int64_t before = sizes[i];
    const std::int64_t behind = sizes[i + 1];
    const std::int64_t size = x.size(dim);
    if (before == 0 && behind == 0) {
      continue;
    }
    check<ConfigError>(std::max(before, behind) <= kLargestPadding, "{}the sizes must be below 2^31, got {} and {}",
                       prefix, before, behind);
    if (mode == PadMode::constant) {
      check<ShapeError>(before >= -size && behind >= -size && size + before + behind >= 0,
                        "{}{} and {} take more from dimension {} of {} than its {} elements", prefix, before, behind,
                        dim, x.shape(), size);
      padded = pad_with(padded, dim, before, behind, value);
      copies = copies || before > 0 || behind > 0;
      continue;
    }
    const std::int64_t most = mode == PadMode::reflect ? size - 1 : mode == PadMode::circular ? size : INT64_MAX;
    check<ShapeError>(
        before >= 0 && behind >= 0 && before <= most && behind <= most && size > 0,
        "{}in this mode dimension {} of {} can be padded by 0 to {}, got {} and {}", prefix, dim, x.shape(),
        mode == PadMode::replicate ? "any number of elements" : fmt::format("{}", std::max<std::int64_t>(most, 0)),
        before, behind);
    copies = true;
    padded = padded.index_select(dim, elements(before, behind, size, mode, x.device()));
  }
  return copies ? padded : padded.clone();  // never a view of x
}

Tensor unfold(const Tensor& x, Size2d kernel_size, Size2d dilation, Size2d padding, Size2d stride) {
  const core::MessagePrefix prefix{"unfold"};
  check<ShapeError>(x.dim() == 4, "{}the input must be [batch, channels, height, width], got {}", prefix, x.shape());
  check<ConfigError>(
      kernel_size.height >= 1 && kernel_size.width >= 1 && dilation.height >= 1 && dilation.width >= 1 &&
          stride.height >= 1 && stride.width >= 1 && padding.height >= 0 && padding.width >= 0,
      "{}kernel_size, dilation and stride must be at least 1, and the padding not negative, got {}, {}, {} and {}",
      prefix, to_string(kernel_size), to_string(dilation), to_string(stride), to_string(padding));
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
