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
  Tensor y;  // what it should answer; undefined where there is no answer
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

 private:
  friend class DatasetHandle;
  // Goes with this object, and not with copies of it: how a handle that borrows it notices its end.
  struct Life {
    Life() : token(std::make_shared<const char>()) {}
    Life(const Life&) : Life() {}
    Life& operator=(const Life&) noexcept { return *this; }  // NOLINT(bugprone-unhandled-self-assignment)
    std::shared_ptr<const char> token;
  };
  Life life_;
};

/// Samples of one shape and element type, stacked along a new first dimension. Throws ShapeError that names two samples
/// which differ, by `indices` where they are given, else by their places; so does ConfigError for a sample without x,
/// or one without y beside one with.
TANDEM_API Example default_collate(std::span<const Example> samples, std::span<const std::int64_t> indices = {});

/// How loaders and data sets hold a data set: keeps a temporary, what a shared pointer points to, and a copy of an
/// lvalue that shares its samples (TensorDataset, Subset); borrows any other lvalue, which must outlive them.
class TANDEM_API DatasetHandle {
 public:
  template <class D>
    requires std::derived_from<std::remove_cvref_t<D>, Dataset>
  DatasetHandle(D&& dataset) {
    constexpr bool kShares = requires { typename std::remove_cvref_t<D>::SharesSamples; };
    if constexpr (std::is_lvalue_reference_v<D> && !kShares) {
      const Dataset& borrowed = dataset;
      pointer_ = {std::shared_ptr<const Dataset>(), &borrowed};
      life_ = borrowed.life_.token;
    } else {
      pointer_ = std::make_shared<std::remove_cvref_t<D>>(std::forward<D>(dataset));
    }
  }
  /// Throws ConfigError for null.
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<D> dataset) : DatasetHandle(Shared{}, std::move(dataset)) {}

  /// The data set. Throws ConfigError when it was borrowed and is gone.
  const Dataset& operator*() const {
    check_alive();
    return *pointer_;
  }
  /// The same.
  const Dataset* operator->() const { return &**this; }

 private:
  struct Shared {};
  DatasetHandle(Shared, std::shared_ptr<const Dataset> dataset);
  void check_alive() const;

  std::shared_ptr<const Dataset> pointer_;
  std::weak_ptr<const char> life_;  // of a borrowed one
};

/// Rows of tensors with equal first sizes; copies share the elements.
class TANDEM_API TensorDataset final : public Dataset {
 public:
  /// For DatasetHandle: a copy will do.
  using SharesSamples = void;
  /// Throws ShapeError when the first sizes differ or there is no dimension.
  TensorDataset(Tensor x, Tensor y);
  /// Without answers: y is undefined.
  explicit TensorDataset(Tensor x) : TensorDataset(std::move(x), Tensor()) {}

  /// Number of rows.
  std::int64_t size() const override { return x_.size(0); }
  /// Throws ConfigError unless 0 <= index < size().
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// All inputs, one a row.
  const Tensor& x() const noexcept { return x_; }
  /// All targets, one a row.
  const Tensor& y() const noexcept { return y_; }
  /// A copy of the given rows. The indices may be on any device.
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
