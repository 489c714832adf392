#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <tandem/data/dataset.h>

// Augmentation: a data set whose samples are changed as they are loaded, and transforms of images for it:
//
//     data::MapDataset augmented(train, {data::RandomCrop(32, {.padding = 4}), data::RandomHorizontalFlip()});
//
// These have torchvision's names, defaults and meaning, but each image of a batch draws its own crop and flip. Draws
// come from current_generator(), which a loader seeds for each batch: an epoch is the same for any number of workers.
// Images are [channels, height, width] of any type, or a batch of them; other shapes are a ShapeError.

namespace tandem::inline v0::data {

/// A function of a batch x [samples, ...]. Returns as many samples, maybe of another shape or type, and leaves the
/// argument as it is. Loader threads may call it at the same time.
using Transform = std::function<Tensor(const Tensor& batch)>;

/// A data set with other inputs: the thread that loads applies the transforms to x, one after the other, without
/// recording. y stays as it is. The samples of a batch have one shape before the first transform.
class TANDEM_API MapDataset final : public Dataset {
 public:
  /// Tells DatasetHandle that it may copy this data set.
  using SharesSamples = void;
  /// Throws ConfigError for a transform that is empty.
  MapDataset(DatasetHandle dataset, std::vector<Transform> transforms);

  std::int64_t size() const override { return dataset_->size(); }
  /// Gives the transforms a batch of one. Throws ShapeError if one of them returns another number of samples.
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  DatasetHandle dataset_;
  std::vector<Transform> transforms_;
};

/// Options of RandomCrop, with torchvision's names.
struct RandomCropOptions {
  std::int64_t padding = 0;  // pixels added on each side before the crop
  double fill = 0;           // value of these pixels
};

/// Cuts a window out of each image, at a random place. With padding, a window of the size of the image is the image
/// shifted by up to `padding` pixels.
class TANDEM_API RandomCrop {
 public:
  /// Throws ConfigError for a size below 1 and for a padding outside [0, 2^30].
  RandomCrop(std::int64_t height, std::int64_t width, const RandomCropOptions& options = {});
  /// A square window.
  explicit RandomCrop(std::int64_t size, const RandomCropOptions& options = {}) : RandomCrop(size, size, options) {}
  /// The windows. Throws ShapeError if the window is larger than the padded images.
  Tensor operator()(const Tensor& images) const;

 private:
  std::int64_t height_, width_;
  RandomCropOptions options_;
};

/// Mirrors each image left to right with probability p.
class TANDEM_API RandomHorizontalFlip {
 public:
  /// Throws ConfigError unless 0 <= p <= 1.
  explicit RandomHorizontalFlip(double p = 0.5);
  /// The images, some of them mirrored.
  Tensor operator()(const Tensor& images) const;

 private:
  double p_;
};

/// (x - mean) / std for each channel. Draws nothing: apply it to the test images as well.
class TANDEM_API Normalize {
 public:
  /// Takes a mean and a standard deviation for each channel. Throws ConfigError for lists that are empty or differ in
  /// length, and unless the numbers are finite, and the deviations above 0, in f32.
  Normalize(const std::vector<double>& mean, const std::vector<double>& std);
  /// The normalised images, in their type. Throws ShapeError for another number of channels, DTypeError for integers.
  Tensor operator()(const Tensor& images) const;

 private:
  Tensor mean_, std_;  // [channels, 1, 1]
};

}  // namespace tandem::inline v0::data
