#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/sampler.h>
#include <tandem/parallel/comm/process_group.h>

namespace tandem::inline v0::parallel {

/// PyTorch's names and defaults.
struct DistributedSamplerOptions {
  std::optional<int> num_replicas = std::nullopt;  // how many share the data set; default: the group's ranks
  std::optional<int> rank = std::nullopt;          // which of them this is; default: this rank
  bool shuffle = true;                             // another order in each epoch, the same on all ranks
  std::uint64_t seed = 0;                          // of those orders, the same on all ranks
  bool drop_last = false;                          // leave out what is too much for equal parts, instead of repeating
  /// Every sample once, for evaluation or in a Join, so that parts may differ by one, or have none; not with drop_last.
  bool exact = false;
  /// The ranks that share the data set, asked now; by default the default group. Null is an error.
  std::optional<ProcessGroup*> process_group = std::nullopt;
};

/// Each rank's part of a data set, for DataLoaderOptions::sampler: of the epoch's order, every W-th index from `rank`
/// on, so that all ranks have as many. What is missing is repeated from the head. The arithmetic is that of
/// torch.utils.data.DistributedSampler.
///
/// The order is a function of `seed` and the epoch, which grows by one with each pass through the loader: there is no
/// call to forget. set_epoch() says which one comes next, for a run that is resumed, or as in PyTorch before each; and
/// where a rank makes passes that the others do not make (evaluates on its training data, looks at a batch), which
/// count.
class TANDEM_API DistributedSampler final : public data::Sampler {
 public:
  /// Throws ConfigError for an empty data set, a rank that is none, exact with drop_last, too few samples for
  /// drop_last to leave each rank one, and where neither options nor a group say who we are. Warns when the group has
  /// another number of ranks, or a part is asked for where there is no group: the others' samples may be used by
  /// nobody.
  explicit DistributedSampler(const data::Dataset& dataset, const DistributedSamplerOptions& options = {});

  /// Samples of this rank in an epoch.
  std::int64_t size() const override { return size_; }
  /// This rank's indices of the next epoch.
  std::vector<std::int64_t> indices() const override;
  std::int64_t largest_size() const override {
    return options_.exact ? (data_size_ + replicas_ - 1) / replicas_ : size_;
  }
  std::optional<std::int64_t> data_size() const override { return data_size_; }
  /// The next pass is that of `epoch`.
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

 private:
  std::int64_t data_size_;
  DistributedSamplerOptions options_;
  std::int64_t replicas_ = 1;
  std::int64_t rank_ = 0;
  std::int64_t size_ = 0;
  mutable std::atomic<std::uint64_t> epoch_{0};
};

}  // namespace tandem::inline v0::parallel
