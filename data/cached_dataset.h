#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <tandem/data/dataset.h>

namespace tandem::inline v0::data {

/// Keeps each sample of a data set in memory once it was asked for: for samples that are slow to read or to decode.
/// Memory: all samples asked for so far. May be used from many threads.
///
/// What a sample is must not depend on when it is loaded: random choices in the data set draw from a generator seeded
/// with the sample's index, and are then the same in every epoch. Augment outside the cache.
class TANDEM_API CachedDataset final : public Dataset {
 public:
  explicit CachedDataset(DatasetHandle dataset);

  std::int64_t size() const override { return static_cast<std::int64_t>(cache_->samples.size()); }
  /// A copy of the sample, which may be written to. A sample that could not be loaded is tried again the next time.
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  struct Cache {
    explicit Cache(std::size_t size) : samples(size) {}
    std::mutex mutex;
    std::vector<std::optional<Example>> samples;
  };

  Example cached(std::int64_t index) const;

  DatasetHandle dataset_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace tandem::inline v0::data
