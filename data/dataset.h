#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Selected samples of a data set in a given order; indices may repeat. Nothing is copied.
class TANDEM_API Subset final : public Dataset {
 public:
  /// Tells DatasetHandle that it may copy this data set.
  using SharesSamples = void;
  /// Throws ConfigError for an index outside [0, dataset.size()).
  Subset(DatasetHandle dataset, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

  /// The whole data set.
  const Dataset& dataset() const { return *dataset_; }
  /// Sample i is sample indices()[i] of dataset(). Errors use the numbering of dataset().
  const std::vector<std::int64_t>& indices() const noexcept { return indices_; }

 private:
  DatasetHandle dataset_;
  std::vector<std::int64_t> indices_;
};

/// Splits a data set at random into disjoint parts with the given numbers of samples. The choice depends only on
/// `seed`, or on current_generator() without a seed. Throws ConfigError unless the lengths add up to dataset.size().
TANDEM_API std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<std::int64_t>& lengths,
                                            std::optional<std::uint64_t> seed = std::nullopt);
/// Splits by fractions that add up to 1. Each part gets floor(size * fraction) samples; the remaining samples go to the
/// parts one by one, starting with the first.
TANDEM_API std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<double>& fractions,
                                            std::optional<std::uint64_t> seed = std::nullopt);
/// Splits by a list of lengths or fractions: random_split(dataset, {800, 200}) or random_split(dataset, {0.8, 0.2}).
template <class T>
  requires std::is_arithmetic_v<T>
std::vector<Subset> random_split(const DatasetHandle& dataset, std::initializer_list<T> lengths,
                                 std::optional<std::uint64_t> seed = std::nullopt) {
  using Length = std::conditional_t<std::floating_point<T>, double, std::int64_t>;
  return random_split(dataset, std::vector<Length>(lengths.begin(), lengths.end()), seed);
}

/// Keeps each sample of a data set in memory after its first use, for samples that are slow to read or decode. Memory:
/// all samples requested so far. Thread-safe.
///
/// A sample must not depend on the time when it is loaded. Random choices in the data set draw from a generator seeded
/// with the sample's index, so they are the same in every epoch. Augment outside the cache.
class TANDEM_API CachedDataset final : public Dataset {
 public:
  explicit CachedDataset(DatasetHandle dataset);

  std::int64_t size() const override;
  /// A writable copy of the sample. A sample that could not be loaded is tried again at the next call.
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  struct Cache;

  Example cached(std::int64_t index) const;

  DatasetHandle dataset_;
  std::shared_ptr<Cache> cache_;
};

}  // namespace tandem::inline v0::data
