#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <tandem/data/dataset.h>

namespace tandem::inline v0::data {

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
