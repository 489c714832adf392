#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include <tandem/data/dataset.h>

namespace tandem::inline v0::data {

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

}  // namespace tandem::inline v0::data
