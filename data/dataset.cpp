#include <tandem/data/dataset.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// One part of each sample as the rows of a batch.
Tensor stack_rows(std::span<const Example> samples, Tensor Example::* part, std::span<const std::int64_t> indices) {
  const Tensor& first = samples[0].*part;
  const auto is_there = [&](const Example& sample) { return (sample.*part).defined(); };
  if (std::none_of(samples.begin(), samples.end(), is_there)) {
    return {};
  }
  check<ConfigError>(std::all_of(samples.begin(), samples.end(), is_there),
                     "DataLoader: some samples of a batch have an x or a y and others have not");
  Shape sizes = first.shape();
  sizes.insert(0, static_cast<std::int64_t>(samples.size()));
  const Tensor batch = empty(sizes, {.dtype = first.dtype(), .device = first.device()});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Tensor& row = samples[i].*part;
    if (row.shape() != first.shape() || row.dtype() != first.dtype()) {
      fail<ShapeError>(
          "DataLoader: the samples of a batch must be of one kind, got {} {} (sample {}) and {} {} (sample {})",
          first.dtype(), first.shape(), indices.empty() ? 0 : indices[0], row.dtype(), row.shape(),
          indices.empty() ? static_cast<std::int64_t>(i) : indices[i]);
    }
    batch[static_cast<std::int64_t>(i)].copy_(row);
  }
  return batch;
}

}  // namespace

Example default_collate(std::span<const Example> samples, std::span<const std::int64_t> indices) {
  const NoGradGuard no_grad;
  check<ConfigError>(!samples.empty(), "default_collate: there are no samples to make a batch of");
  return {stack_rows(samples, &Example::x, indices), stack_rows(samples, &Example::y, indices)};
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
    fail<ShapeError>("TensorDataset: x {} and y {} must have the same number of rows", x_.shape(), y_.shape());
  }
}

Example TensorDataset::get(std::int64_t index) const {
  check<ConfigError>(index >= 0 && index < size(), "TensorDataset: there is no sample {}: expected 0 to {}", index,
                     size() - 1);
  return {x_[index], y_.defined() ? y_[index] : Tensor()};
}

Example TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
  const NoGradGuard no_grad;
  const Tensor rows = from_data(indices, {static_cast<std::int64_t>(indices.size())}, {.device = x_.device()});
  return {x_.index_select(0, rows), y_.defined() ? y_.index_select(0, rows.to(y_.device())) : Tensor()};
}

TensorDataset TensorDataset::subset(const Tensor& indices) const {
  const NoGradGuard no_grad;
  return TensorDataset(x_.index_select(0, indices), y_.defined() ? y_.index_select(0, indices) : Tensor());
}

Split random_split(std::int64_t size, double test_fraction, std::uint64_t seed) {
  const auto test = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * test_fraction));
  check<ConfigError>(test_fraction > 0 && test_fraction < 1 && test >= 1 && test < size,
                     "random_split: {} of {} rows for the test part leave one of the parts empty", test_fraction, size);
  Generator generator(seed);
  const GeneratorScope scope(generator);
  const Tensor order = randperm(size);
  return {.train = order.narrow(0, test, size - test).contiguous(), .test = order.narrow(0, 0, test).contiguous()};
}

}  // namespace tandem::inline v0::data
