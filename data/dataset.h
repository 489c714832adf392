#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::data {

/// One sample, or a batch of samples with a leading dimension: `auto [x, y] = dataset.get(0);`.
struct Example {
  Tensor x;  // input of the model
  Tensor y;  // expected output; undefined if the data has no targets
};

/// Samples by index. get() may run on several loader threads at once, so it must be safe for concurrent calls. Random
/// choices in get() draw from current_generator(), which a loader seeds per batch: they are the same for any number of
/// workers.
class TANDEM_API Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual std::int64_t size() const = 0;
  /// Sample `index`, in [0, size()).
  virtual Example get(std::int64_t index) const = 0;
  /// The samples at `indices`, stacked. Override if a batch can be loaded at once.
  virtual Example get_batch(std::span<const std::int64_t> indices) const;
  /// get(index), with the sample named in errors. An exception of another type becomes a tandem::Error with the
  /// original nested inside: std::rethrow_if_nested(error) throws it.
  Example load(std::int64_t index) const;

 private:
  friend class DatasetHandle;
  // The token lives exactly as long as this object; copies get their own. A borrowing handle uses it to notice the end.
  struct Life {
    Life() : token(std::make_shared<const char>()) {}
    Life(const Life&) : Life() {}
    Life& operator=(const Life&) noexcept { return *this; }  // NOLINT(bugprone-unhandled-self-assignment)
    std::shared_ptr<const char> token;
  };
  Life life_;
};

/// Stacks samples of one shape and element type along a new first dimension. Throws ShapeError naming two samples that
/// differ, by `indices` if given, else by position. Throws ConfigError, naming the samples likewise, if a sample has no
/// x or only some samples have a y.
TANDEM_API Example default_collate(std::span<const Example> samples, std::span<const std::int64_t> indices = {});

/// Holds a data set for loaders and other data sets. The handle keeps a temporary, shares the target of a shared
/// pointer, and copies an lvalue that shares its samples (TensorDataset, Subset). Any other lvalue is borrowed and must
/// outlive the handle.
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

  /// The data set. Throws ConfigError if it was borrowed and no longer exists.
  const Dataset& operator*() const {
    check_alive();
    return *pointer_;
  }
  /// The data set, with the check of operator*.
  const Dataset* operator->() const { return &**this; }

 private:
  struct Shared {};
  DatasetHandle(Shared, std::shared_ptr<const Dataset> dataset);
  void check_alive() const;

  std::shared_ptr<const Dataset> pointer_;
  std::weak_ptr<const char> life_;  // token of a borrowed data set
};

/// Rows of tensors with equal first sizes. Copies share the elements.
class TANDEM_API TensorDataset final : public Dataset {
 public:
  /// Tells DatasetHandle that it may copy this data set.
  using SharesSamples = void;
  /// Throws ShapeError if the first sizes differ or a tensor has no dimensions.
  TensorDataset(Tensor x, Tensor y);
  /// A data set without targets: y is undefined.
  explicit TensorDataset(Tensor x) : TensorDataset(std::move(x), Tensor()) {}

  /// Number of rows.
  std::int64_t size() const override { return x_.size(0); }
  /// Throws ConfigError unless 0 <= index < size().
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// All inputs, one per row.
  const Tensor& x() const noexcept { return x_; }
  /// All targets, one per row.
  const Tensor& y() const noexcept { return y_; }
  /// A copy of the given rows. The indices may be on any device.
  TensorDataset subset(const Tensor& indices) const;

 private:
  Tensor x_;
  Tensor y_;
};

/// Two disjoint sets of row numbers (i64) that together contain every row.
struct Split {
  Tensor train;  // row numbers of the training part
  Tensor test;   // row numbers of the test part
};

/// Puts round(size * test_fraction) rows into the test part; the choice depends only on `seed`. Throws ConfigError
/// unless both parts get at least one row.
TANDEM_API Split random_split(std::int64_t size, double test_fraction, std::uint64_t seed);

}  // namespace tandem::inline v0::data
