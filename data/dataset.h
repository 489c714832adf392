#pragma once

#include <cstdint>
#include <span>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// One sample, or a batch of them (with a leading dimension): `auto [x, y] = dataset.get(0);`.
struct Example {
  Tensor x;  // what the model sees
  Tensor y;  // what it should answer
};

/// Samples by index. get() may run on several loader threads at once, so it must be const in the true sense. Random
/// choices in it draw from current_generator(), which a loader seeds per batch: the same for any number of workers.
class TANDEM_API Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual std::int64_t size() const = 0;
  /// Sample `index`, in [0, size()).
  virtual Example get(std::int64_t index) const = 0;
  /// The samples at `indices`, stacked. Override where a batch can be had at once.
  virtual Example get_batch(std::span<const std::int64_t> indices) const;
};

/// Rows of tensors with equal first sizes.
class TANDEM_API TensorDataset final : public Dataset {
 public:
  /// Throws ShapeError when the first sizes differ or there is no dimension.
  TensorDataset(Tensor x, Tensor y);

  /// Number of rows.
  std::int64_t size() const override { return x_.size(0); }
  Example get(std::int64_t index) const override { return {x_[index], y_[index]}; }
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// All inputs, one a row.
  const Tensor& x() const noexcept { return x_; }
  /// All targets, one a row.
  const Tensor& y() const noexcept { return y_; }
  /// A copy of the given rows.
  TensorDataset subset(const Tensor& indices) const;

 private:
  Tensor x_;
  Tensor y_;
};

/// Two disjoint sets of row numbers (i64) that together are all.
struct Split {
  Tensor train;  // numbers of its rows
  Tensor test;   // of the others
};

/// Puts round(size * test_fraction) rows, chosen by `seed` alone, into the test part. Throws ConfigError unless both
/// parts get at least one row.
TANDEM_API Split random_split(std::int64_t size, double test_fraction, std::uint64_t seed);

}  // namespace tandem::inline v0::data
