#include <tandem/data/subset.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

std::vector<std::int64_t> random_order(std::int64_t size, std::optional<std::uint64_t> seed) {
  if (!seed) {
    return randperm(size).to_vector<std::int64_t>();
  }
  Generator generator(*seed);
  const GeneratorScope scope(generator);
  return randperm(size).to_vector<std::int64_t>();
}

}  // namespace

Subset::Subset(DatasetHandle dataset, std::vector<std::int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  for (const std::int64_t index : indices_) {
    check<ConfigError>(index >= 0 && index < dataset_->size(),
                       "Subset: index {} is outside the data set, which has {} samples", index, dataset_->size());
  }
}

Example Subset::get(std::int64_t index) const {
  check_sample("Subset", index, size());
  const std::int64_t behind = indices_[static_cast<std::size_t>(index)];
  try {
    return dataset_->get(behind);
  } catch (...) {
    rethrow_while(fmt::format("loading sample {} of the data set behind the Subset", behind));
  }
}

Example Subset::get_batch(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> behind;
  for (const std::int64_t index : indices) {
    check_sample("Subset", index, size());
    behind.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  return dataset_->get_batch(behind);
}

std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<std::int64_t>& lengths,
                                 std::optional<std::uint64_t> seed) {
  std::int64_t rest = dataset->size();
  for (const std::int64_t length : lengths) {
    check<ConfigError>(length >= 0 && length <= rest,
                       "random_split: lengths [{}] do not add up to the {} samples of the data set",
                       fmt::join(lengths, ", "), dataset->size());
    rest -= length;
  }
  check<ConfigError>(rest == 0, "random_split: lengths [{}] do not add up to the {} samples of the data set",
                     fmt::join(lengths, ", "), dataset->size());
  const std::vector<std::int64_t> order = random_order(dataset->size(), seed);
  std::vector<Subset> parts;
  auto begin = order.begin();
  for (const std::int64_t length : lengths) {
    parts.emplace_back(dataset, std::vector<std::int64_t>(begin, begin + length));
    begin += length;
  }
  return parts;
}

std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<double>& fractions,
                                 std::optional<std::uint64_t> seed) {
  constexpr double kRounding = 1e-9;
  double sum = 0;
  bool each_fits = true;
  std::vector<double> written;
  for (const double fraction : fractions) {
    each_fits = each_fits && fraction >= 0 && fraction <= 1;
    sum += fraction;
    written.push_back(core::printable(fraction));
  }
  check<ConfigError>(each_fits && std::abs(sum - 1) < kRounding,
                     "random_split: fractions [{}] must be from 0 to 1 and add up to 1", fmt::join(written, ", "));
  std::vector<std::int64_t> lengths;
  for (const double fraction : fractions) {
    lengths.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(dataset->size()) * fraction)));
  }
  std::int64_t rest = dataset->size() - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (std::size_t i = 0; rest > 0; i = (i + 1) % lengths.size(), --rest) {
    ++lengths[i];
  }
  return random_split(dataset, lengths, seed);
}

}  // namespace tandem::inline v0::data
