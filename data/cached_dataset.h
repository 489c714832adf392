#pragma once

#include <cstdint>
#include <memory>
#include <span>

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

  std::int64_t size() const override;
  /// A copy of the sample, which may be written to. A sample that could not be loaded is tried again the next time.
  Example get(std::int64_t index) const override;
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  struct Cache;

  Example cached(std::int64_t index) const;

  DatasetHandle dataset_;
  std::shared_ptr<Cache> cache_;
};

}  // namespace tandem::inline v0::data
