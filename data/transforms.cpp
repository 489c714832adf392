#include <tandem/data/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

Tensor transformed(Tensor batch, const std::vector<Transform>& transforms) {
  const NoGradGuard no_grad;
  const std::int64_t count = batch.size(0);
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    batch = transforms[i](batch);
    check<ShapeError>(batch.dim() > 0 && batch.size(0) == count,
                      "MapDataset: transform {} must return its {} samples, got {}", i, count, batch.shape());
  }
  return batch;
}

Tensor as_batch(const char* name, const Tensor& images) {
  check<ShapeError>(images.dim() == 3 || images.dim() == 4,
                    "{}: expected images [channels, height, width] or a batch of them, got {}; reshape() them", name,
                    images.shape());
  return images.dim() == 3 ? images.unsqueeze(0) : images;
}

}  // namespace

MapDataset::MapDataset(DatasetHandle dataset, std::vector<Transform> transforms)
    : dataset_(std::move(dataset)), transforms_(std::move(transforms)) {
  for (std::size_t i = 0; i < transforms_.size(); ++i) {
    check<ConfigError>(transforms_[i] != nullptr, "MapDataset: transform {} is empty; pass a function", i);
  }
}

Example MapDataset::get(std::int64_t index) const {
  const Example sample = dataset_->get(index);
  return {transformed(sample.x.unsqueeze(0), transforms_)[0], sample.y};
}

Example MapDataset::get_batch(std::span<const std::int64_t> indices) const {
  const Example batch = dataset_->get_batch(indices);
  return {transformed(batch.x, transforms_), batch.y};
}

RandomCrop::RandomCrop(std::int64_t height, std::int64_t width, const RandomCropOptions& options)
    : height_(height), width_(width), options_(options) {
  check<ConfigError>(height >= 1 && width >= 1 && options.padding >= 0 && options.padding <= std::int64_t{1} << 30,
                     "RandomCrop: expected a size of at least 1x1 and a padding from 0 to 2^30, got {}x{} and {}",
                     height, width, options.padding);
}

Tensor RandomCrop::operator()(const Tensor& images) const {
  const NoGradGuard no_grad;
  const Tensor batch = as_batch("RandomCrop", images);
  const std::int64_t count = batch.size(0);
  const std::int64_t down = batch.size(2) + 2 * options_.padding - height_;  // the room that the window has
  const std::int64_t right = batch.size(3) + 2 * options_.padding - width_;
  check<ShapeError>(down >= 0 && right >= 0,
                    "RandomCrop: a window of {}x{} is too large for images {} with padding {}; add padding", height_,
                    width_, images.shape(), options_.padding);
  const auto tops = randint(0, down + 1, {count}, {.device = "cpu"}).to_vector<std::int64_t>();
  const auto lefts = randint(0, right + 1, {count}, {.device = "cpu"}).to_vector<std::int64_t>();
  const Tensor windows =
      full({count, batch.size(1), height_, width_}, options_.fill, {.dtype = batch.dtype(), .device = batch.device()});
  for (std::int64_t i = 0; i < count; ++i) {
    // Pixel (y, x) of the window is pixel (y + top, x + left) of the image.
    const std::int64_t top = tops[static_cast<std::size_t>(i)] - options_.padding;
    const std::int64_t left = lefts[static_cast<std::size_t>(i)] - options_.padding;
    const std::int64_t y = std::max<std::int64_t>(0, -top);
    const std::int64_t x = std::max<std::int64_t>(0, -left);
    const std::int64_t height = std::min(height_, batch.size(2) - top) - y;
    const std::int64_t width = std::min(width_, batch.size(3) - left) - x;
    if (height > 0 && width > 0) {
      const Tensor shared = batch[i].narrow(1, top + y, height).narrow(2, left + x, width);
      windows[i].narrow(1, y, height).narrow(2, x, width).copy_(shared);
    }
  }
  return images.dim() == 3 ? windows[0] : windows;
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) {
  check<ConfigError>(p >= 0 && p <= 1, "RandomHorizontalFlip: p must be a probability from 0 to 1, got {}", p);
}

Tensor RandomHorizontalFlip::operator()(const Tensor& images) const {
  const NoGradGuard no_grad;
  const Tensor batch = as_batch("RandomHorizontalFlip", images);
  const std::int64_t columns = batch.size(3);
  std::vector<std::int64_t> sources;  // for each image, the column that each column comes from
  for (const double draw : rand({batch.size(0)}, {.device = "cpu"}).to_vector<double>()) {
    for (std::int64_t column = 0; column < columns; ++column) {
      sources.push_back(draw < p_ ? columns - 1 - column : column);
    }
  }
  const Tensor index = from_data(sources, {batch.size(0), 1, 1, columns}, {.device = batch.device()});
  return batch.gather(3, index.expand(batch.shape())).reshape(images.shape());
}

Normalize::Normalize(const std::vector<double>& mean, const std::vector<double>& std) {
  check<ConfigError>(!mean.empty() && mean.size() == std.size(),
                     "Normalize: expected a mean and a std for each channel, got {} and {}", mean.size(), std.size());
  const Shape sizes{static_cast<std::int64_t>(mean.size()), 1, 1};
  mean_ = from_data(mean, sizes, {.dtype = DType::f64, .device = "cpu"});
  std_ = from_data(std, sizes, {.dtype = DType::f64, .device = "cpu"});
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const auto divisor = static_cast<float>(std[i]);
    check<ConfigError>(std::isfinite(static_cast<float>(mean[i])) && std::isfinite(divisor) && divisor > 0,
                       "Normalize: channel {}: mean {}, std {}; expected finite numbers, std > 0", i, mean[i], std[i]);
  }
}

Tensor Normalize::operator()(const Tensor& images) const {
  const NoGradGuard no_grad;
  check<ShapeError>(as_batch("Normalize", images).size(1) == mean_.size(0),
                    "Normalize: there are means of {} channels, got images {}; pass a mean and a std for each channel",
                    mean_.size(0), images.shape());
  check<DTypeError>(is_floating_point(images.dtype()), "Normalize: got {} images; convert them with .to(DType::f32)",
                    images.dtype());
  const bool is_f64 = images.dtype() == DType::f64;
  const Tensor result = is_f64 || images.dtype() == DType::f32 ? images.clone() : images.to(DType::f32);
  const auto like = [&](const Tensor& values) { return values.to(result.dtype()).to(images.device()); };
  return Tensor(result).sub_(like(mean_)).div_(like(std_)).to(images.dtype());
}

}  // namespace tandem::inline v0::data
