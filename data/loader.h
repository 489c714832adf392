#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tandem/data/dataset.h>
#include <tandem/data/sampler.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::data {

/// Options of DataLoader, with PyTorch's names where PyTorch has a counterpart.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;                       // number of samples in a batch
  bool shuffle = false;                              // a new random order in each epoch
  std::shared_ptr<const Sampler> sampler = nullptr;  // chooses samples and order; default: all, in order
  int num_workers = 0;                               // threads that load ahead; 0 loads in the calling thread
  /// Makes a batch from its samples; the default is default_collate. Runs on the loading threads.
  std::function<Example(std::span<const Example> samples)> collate_fn = nullptr;
  bool drop_last = false;                            // omit a last batch that is not full
  int prefetch_factor = 2;                           // batches loaded ahead per worker
  std::optional<std::uint64_t> seed = std::nullopt;  // seed of the order; default: drawn from the current generator
  std::optional<Device> device = std::nullopt;       // destination of batches; default: the device of the data set
};

/// Batches of a data set: `for (auto [x, y] : loader)` runs one epoch. The order of epoch e depends only on (seed, e),
/// not on the number of workers; each begin() starts the next epoch. Leaving the loop early is safe at any time. An
/// exception in a worker reaches the loop at its batch, as a tandem::Error with the sample's index; a foreign exception
/// is nested inside (std::rethrow_if_nested).
class TANDEM_API DataLoader {
 public:
  class Iterator;

  /// Borrows a data set that is an lvalue, which must outlive the loader, and keeps a temporary. Throws ConfigError for
  /// an empty data set, a batch size below 1, drop_last with less than one batch, shuffle combined with a sampler, or a
  /// sampler made for another data set.
  explicit DataLoader(DatasetHandle dataset, const DataLoaderOptions& options = {});

  /// Number of batches in an epoch.
  std::int64_t size() const;
  /// Number of the epoch that begin() starts next.
  std::int64_t epoch() const noexcept { return epoch_.value_or(0); }
  /// Sets the number of the next epoch, which starts with its first batch; the epoch of a loaded state goes on instead.
  void set_epoch(std::int64_t epoch) noexcept {
    epoch_ = epoch;
    if (resumed_ && resumed_->epoch == epoch) {
      return;
    }
    place_.reset();
    resumed_.reset();
  }

  /// The place in the data, to continue from later: "epoch", "batch" (batches of that epoch that were handed out), and
  /// what the order depends on: "seed", "shuffle", "samples" (of all ranks), "batch_size", "replicas" (ranks that share
  /// the samples), "used" (samples of the epoch that came before these batches); all i64. Inside the loop it is the
  /// place after the current batch, and so it stays after a loop that was left early, until the next begin().
  StateDict state_dict() const;
  /// Leaves out the rest of an epoch whose loop was left early: state_dict() is the place of the next epoch's
  /// beginning. Does nothing while an iterator exists.
  void end_epoch() noexcept {
    if (place_.use_count() == 1 && !resumed_) {
      place_.reset();
    }
  }
  /// Makes the next begin() continue at that place, in the middle of an epoch too, with the batches that the saved
  /// loader would have given. With another batch size or number of ranks, the samples that nobody has used are given in
  /// new batches; all ranks must load the state of rank 0. Throws ConfigError unless the state is that of a loader with
  /// as many samples and the same `shuffle`, and then nothing is changed.
  void load_state_dict(const StateDict& state);

  /// Starts an epoch.
  Iterator begin();
  /// The end of an epoch.
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  struct Pass;
  struct Place {
    std::int64_t epoch = 0;
    std::int64_t batch = 0;
    std::int64_t used = 0;  // samples of all replicas before batch 0
  };

  std::int64_t samples_per_epoch() const;
  std::int64_t samples_of_all() const;
  std::int64_t num_replicas() const;
  std::int64_t batches_of(std::int64_t samples) const;
  std::vector<std::int64_t> order_after(const Place& place) const;

  DatasetHandle dataset_;
  DataLoaderOptions options_;
  std::uint64_t seed_;
  std::optional<std::int64_t> epoch_ = std::nullopt;
  std::shared_ptr<Place> place_;    // of the latest epoch that was begun, or of a loaded state
  std::optional<Place> resumed_{};  // where the next begin() continues, if it begins that epoch
};

/// Iterates over one epoch; move-only.
class TANDEM_API DataLoader::Iterator {
 public:
  /// The element type of the loop: one batch.
  using value_type = Example;
  /// Required of iterators.
  using difference_type = std::ptrdiff_t;

  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  /// The current batch.
  const Example& operator*() const noexcept { return current_; }
  /// Goes to the next batch. Throws the error of loading it.
  Iterator& operator++();
  void operator++(int) { ++*this; }
  /// Whether the epoch is over.
  friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept { return it.done(); }

 private:
  friend class DataLoader;
  explicit Iterator(std::unique_ptr<Pass> pass);
  bool done() const noexcept;

  std::unique_ptr<Pass> pass_;
  Example current_;
};

}  // namespace tandem::inline v0::data
