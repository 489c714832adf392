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
    fail<ShapeError>("TensorDataset: x {} and y {} must have the same number of rows", x_.shape(), y_.shape());
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
                     "random_split: test_fraction {} leaves no rows of {} for the test; {}", test_fraction, size,
                     kShare);
  check<ConfigError>(test_fraction < 1 && test < size,
                     "random_split: test_fraction {} leaves no rows of {} for training; {}", test_fraction, size,
                     kShare);
  Generator generator(seed);
  const GeneratorScope scope(generator);
  const Tensor order = randperm(size);
  return {.train = order.narrow(0, test, size - test).contiguous(), .test = order.narrow(0, 0, test).contiguous()};
}

}  // namespace tandem::inline v0::data
