#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/sampler.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// Options of DistributedSampler, with PyTorch's names and defaults.
struct DistributedSamplerOptions {
  std::optional<int> num_replicas = std::nullopt;  // that share the data set; default: the group's ranks
  std::optional<int> rank = std::nullopt;          // of this sampler among them; default: this rank
  bool shuffle = true;                             // another order in each epoch, the same on all ranks
  std::uint64_t seed = 0;                          // of the orders, the same on all ranks
  bool drop_last = false;                          // leave samples out to get equal parts, instead of repeating some
  /// Every sample comes once, for evaluation or in a Join: parts may differ by one sample, or have none. Not with
  /// drop_last.
  bool exact = false;
  /// The ranks that share the data set, by default the default group. Looked at once, by the constructor. Null is an
  /// error.
  std::optional<ProcessGroup*> process_group = std::nullopt;
};

/// Each rank's part of a data set, for DataLoaderOptions::sampler: every W-th index of the epoch's order, from `rank`
/// on. All ranks have equally many; missing samples are repeated from the head of the order. The arithmetic is that of
/// torch.utils.data.DistributedSampler.
///
/// The order is a function of `seed` and the epoch, which is that of the loader: it grows by one with each pass, so no
/// call can be forgotten. A run resumes with set_epoch() of the loader or of the sampler; either is enough. The
/// sampler's is also for programs that call it before each epoch as in PyTorch, and for a rank that makes passes of its
/// own (evaluates on its training data, looks at a batch), since these count. A new loader goes on where the last
/// loader of the sampler was. A loader that resumes within an epoch with another number of ranks shares what is left of
/// it among them.
class TANDEM_API DistributedSampler final : public data::Sampler {
 public:
  /// Throws ConfigError for an empty data set, an invalid rank, exact with drop_last, or too few samples for drop_last
  /// to leave each rank one; also if neither the options nor a group provide the rank. Warns when the group has another
  /// number of ranks, or when num_replicas is above 1 and no group exists: the other parts may never be used. Says
  /// each such thing once.
  explicit DistributedSampler(const data::Dataset& dataset, const DistributedSamplerOptions& options = {});

  /// Samples of this rank in an epoch.
  std::int64_t size() const override { return size_; }
  /// Returns this rank's indices in the epoch of set_epoch(), and then in those after it: for use without a loader.
  std::vector<std::int64_t> indices() const override { return indices_of(static_cast<std::int64_t>(epoch_++)); }
  std::vector<std::int64_t> indices_of(std::int64_t epoch) const override { return indices_after(epoch, 0); }
  std::int64_t num_replicas() const override { return replicas_; }
  std::vector<std::int64_t> indices_after(std::int64_t epoch, std::int64_t used) const override;
  std::int64_t next_epoch(std::optional<std::int64_t> epoch) const override;
  std::int64_t largest_size() const override {
    return options_.exact ? (data_size_ + replicas_ - 1) / replicas_ : size_;
  }
  std::optional<std::int64_t> data_size() const override { return data_size_; }
  /// Makes the next pass through the loader that of `epoch`.
  void set_epoch(std::uint64_t epoch) {
    epoch_ = epoch;
    is_set_ = true;
  }

 private:
  /// This rank's part of so many samples.
  std::int64_t share_of(std::int64_t samples) const;

  std::int64_t data_size_;
  DistributedSamplerOptions options_;
  std::int64_t replicas_ = 1;
  std::int64_t rank_ = 0;
  std::int64_t size_ = 0;
  mutable std::atomic<std::uint64_t> epoch_{0};
  mutable std::atomic<bool> is_set_{false};  // and no loader has asked since
};

}  // namespace tandem::inline v0::parallel
