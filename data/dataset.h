#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

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
  /// get(index), whose errors then name the sample. What is not tandem's arrives as a tandem::Error with the original
  /// inside: std::rethrow_if_nested(error) throws it.
  Example load(std::int64_t index) const;
};

/// Samples of one shape and element type, stacked along a new first dimension. Throws ShapeError that names two samples
/// which differ, by `indices` where they are given, else by their places.
TANDEM_API Example default_collate(std::span<const Example> samples, std::span<const std::int64_t> indices = {});

/// How loaders and data sets hold a data set: borrows an lvalue, which must outlive them, and keeps a temporary, or
/// what a shared pointer points to.
class TANDEM_API DatasetHandle {
 public:
  template <class D>
    requires std::derived_from<std::remove_cvref_t<D>, Dataset>
  DatasetHandle(D&& dataset) {
    if constexpr (std::is_lvalue_reference_v<D>) {
      pointer_ = {std::shared_ptr<const Dataset>(), &dataset};
    } else {
      pointer_ = std::make_shared<std::remove_cvref_t<D>>(std::forward<D>(dataset));
    }
  }
  /// Throws ConfigError for null.
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<D> dataset) : DatasetHandle(Shared{}, std::move(dataset)) {}

  /// The data set.
  const Dataset& operator*() const noexcept { return *pointer_; }
  /// The data set.
  const Dataset* operator->() const noexcept { return pointer_.get(); }

 private:
  struct Shared {};
  DatasetHandle(Shared, std::shared_ptr<const Dataset> dataset);

  std::shared_ptr<const Dataset> pointer_;
};

/// Rows of tensors with equal first sizes.
class TANDEM_API TensorDataset final : public Dataset {
 public:
  /// Throws ShapeError when the first sizes differ or there is no dimension.
  TensorDataset(Tensor x, Tensor y);

  /// Number of rows.
  std::int64_t size() const override { return x_.size(0); }
  /// Throws ConfigError unless 0 <= index < size().
  Example get(std::int64_t index) const override;
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
