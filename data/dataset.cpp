#include <tandem/data/dataset.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/core/grad_mode.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::data {

namespace {

// The number of sample `i` of a batch in messages.
std::int64_t name_of(std::size_t i, std::span<const std::int64_t> indices) {
  return indices.empty() ? static_cast<std::int64_t>(i) : indices[i];
}

// Checks that every sample has an x. Returns whether the samples have a y.
bool check_parts(std::span<const Example> samples, std::span<const std::int64_t> indices) {
  const auto has_y = [](const Example& sample) { return sample.y.defined(); };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    check<ConfigError>(samples[i].x.defined(), "DataLoader: sample {} has no x", name_of(i, indices));
  }
  const auto with = std::find_if(samples.begin(), samples.end(), has_y);
  const auto without = std::find_if_not(samples.begin(), samples.end(), has_y);
  if (with != samples.end() && without != samples.end()) {
    fail<ConfigError>("DataLoader: sample {} has no y, and sample {} has one; all samples of a batch need one, or none",
                      name_of(static_cast<std::size_t>(without - samples.begin()), indices),
                      name_of(static_cast<std::size_t>(with - samples.begin()), indices));
  }
  return with != samples.end();
}

// Stacks one part of each sample as the rows of a batch.
Tensor stack_rows(std::span<const Example> samples, Tensor Example::* part, std::span<const std::int64_t> indices) {
  const Tensor& first = samples[0].*part;
  Shape sizes = first.shape();
  sizes.insert(0, static_cast<std::int64_t>(samples.size()));
  const Tensor batch = empty(sizes, {.dtype = first.dtype(), .device = first.device()});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Tensor& row = samples[i].*part;
    if (row.shape() != first.shape() || row.dtype() != first.dtype()) {
      fail<ShapeError>(
          "DataLoader: the samples of a batch must be of one kind, got {} {} (sample {}) and {} {} (sample {})",
          first.dtype(), first.shape(), name_of(0, indices), row.dtype(), row.shape(), name_of(i, indices));
    }
    batch[static_cast<std::int64_t>(i)].copy_(row);
  }
  return batch;
}

}  // namespace

Example default_collate(std::span<const Example> samples, std::span<const std::int64_t> indices) {
  const NoGradGuard no_grad;
  check<ConfigError>(!samples.empty(), "default_collate: there are no samples to make a batch of");
  const bool answered = check_parts(samples, indices);
  return {stack_rows(samples, &Example::x, indices), answered ? stack_rows(samples, &Example::y, indices) : Tensor()};
}

Example Dataset::load(std::int64_t index) const {
  try {
    return get(index);
  } catch (...) {
    rethrow_while(fmt::format("loading sample {}", index));
  }
}

Example Dataset::get_batch(std::span<const std::int64_t> indices) const {
  std::vector<Example> samples;
  for (const std::int64_t index : indices) {
    samples.push_back(load(index));
  }
  return default_collate(samples, indices);
}

DatasetHandle::DatasetHandle(Shared, std::shared_ptr<const Dataset> dataset) : pointer_(std::move(dataset)) {
  check<ConfigError>(pointer_ != nullptr, "the data set is a null pointer");
}

void DatasetHandle::check_alive() const {
  check<ConfigError>(pointer_.use_count() > 0 || !life_.expired(),
                     "the data set that was handed in is gone; keep it as long as what uses it, or hand it over with "
                     "std::move or as a shared pointer");
}

TensorDataset::TensorDataset(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {
  check<ShapeError>(x_.dim() > 0 && (!y_.defined() || y_.dim() > 0),
                    "TensorDataset: a tensor without dimensions has no rows");
  if (y_.defined() && x_.size(0) != y_.size(0)) {
    fail<ShapeError>("TensorDataset: x {} and y {} must have the same number of rows [TDM-E502]", x_.shape(),
                     y_.shape());
  }
}

Example TensorDataset::get(std::int64_t index) const {
  check_sample("TensorDataset", index, size());
  return {x_[index], y_.defined() ? y_[index] : Tensor()};
}

Example TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
  const NoGradGuard no_grad;
  for (const std::int64_t index : indices) {
    check_sample("TensorDataset", index, size());  // checked here, because a GPU would report the error only later
  }
  const Tensor rows = from_data(indices, {static_cast<std::int64_t>(indices.size())}, {.device = x_.device()});
  return {x_.index_select(0, rows), y_.defined() ? y_.index_select(0, rows.to(y_.device())) : Tensor()};
}

TensorDataset TensorDataset::subset(const Tensor& indices) const {
  const NoGradGuard no_grad;
  return TensorDataset(x_.index_select(0, indices.to(x_.device())),
                       y_.defined() ? y_.index_select(0, indices.to(y_.device())) : Tensor());
}

Split random_split(std::int64_t size, double test_fraction, std::uint64_t seed) {
  const auto test = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * test_fraction));
  constexpr const char* kShare = "it is a share of the rows, between 0 and 1";
  check<ConfigError>(test_fraction > 0 && test >= 1,
                     "random_split: test_fraction {} leaves no rows of {} for the test; {} [TDM-E504]", test_fraction,
                     size, kShare);
  check<ConfigError>(test_fraction < 1 && test < size,
                     "random_split: test_fraction {} leaves no rows of {} for training; {} [TDM-E504]", test_fraction,
                     size, kShare);
  Generator generator(seed);
  const GeneratorScope scope(generator);
  const Tensor order = randperm(size);
  return {.train = order.narrow(0, test, size - test).contiguous(), .test = order.narrow(0, 0, test).contiguous()};
}

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
                       "Subset: index {} is outside the data set, which has {} samples [TDM-E503]", index,
                       dataset_->size());
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

namespace {

Example copy_of(const Example& sample) {
  const auto copy = [](const Tensor& part) { return part.defined() ? part.clone() : Tensor(); };
  return {copy(sample.x), copy(sample.y)};
}

}  // namespace

struct CachedDataset::Cache {
  explicit Cache(std::size_t size) : samples(size) {}
  core::ForkSafeMutex mutex;
  std::vector<std::optional<Example>> samples;
};

CachedDataset::CachedDataset(DatasetHandle dataset)
    : dataset_(std::move(dataset)), cache_(std::make_shared<Cache>(static_cast<std::size_t>(dataset_->size()))) {}

std::int64_t CachedDataset::size() const { return static_cast<std::int64_t>(cache_->samples.size()); }

Example CachedDataset::cached(std::int64_t index) const {
  check_sample("CachedDataset", index, size());
  std::optional<Example>& place = cache_->samples[static_cast<std::size_t>(index)];
  {
    const std::lock_guard lock(cache_->mutex);
    if (place) {
      return *place;
    }
  }
  // Loading is slow, so threads load in parallel. If two threads load one sample, the first result is kept.
  const NoGradGuard no_grad;
  Generator generator(static_cast<std::uint64_t>(index));
  const GeneratorScope scope(generator);
  const Example loaded = dataset_->get(index);
  // A copy with its own memory, because a data set may return views of its own data.
  Example copy = copy_of(loaded);
  const std::lock_guard lock(cache_->mutex);
  if (!place) {
    place = std::move(copy);
  }
  return *place;
}

Example CachedDataset::get(std::int64_t index) const {
  const NoGradGuard no_grad;
  const Example sample = cached(index);
  return copy_of(sample);
}

Example CachedDataset::get_batch(std::span<const std::int64_t> indices) const {
  std::vector<Example> samples;
  for (const std::int64_t index : indices) {
    try {
      samples.push_back(cached(index));
    } catch (...) {
      rethrow_while(fmt::format("loading sample {}", index));
    }
  }
  return default_collate(samples, indices);
}

}  // namespace tandem::inline v0::data
