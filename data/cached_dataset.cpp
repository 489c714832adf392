#include <tandem/data/cached_dataset.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/core/grad_mode.h>
#include <tandem/data/diagnostics.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::data {

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
