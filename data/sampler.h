#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/dataset.h>

namespace tandem::inline v0::data {

/// Chooses the samples of an epoch and their order, see DataLoaderOptions::sampler.
class TANDEM_API Sampler {
 public:
  virtual ~Sampler() = default;
  /// Number of samples in an epoch. 0, for example on a rank without a share of the data, gives an epoch without
  /// batches.
  virtual std::int64_t size() const = 0;
  /// The size() indices of one epoch. Random choices must draw only from current_generator(): the loader seeds it per
  /// epoch, so the order depends only on the loader's seed and the epoch.
  virtual std::vector<std::int64_t> indices() const = 0;
  /// Like indices(), for a sampler whose order depends on the epoch.
  virtual std::vector<std::int64_t> indices_of(std::int64_t /*epoch*/) const { return indices(); }
  /// The number of samplers that share an epoch's samples, each on a rank of its own.
  virtual std::int64_t num_replicas() const { return 1; }
  /// The rest of an epoch of which all replicas together have used the first `used` samples: this replica's indices.
  virtual std::vector<std::int64_t> indices_after(std::int64_t epoch, std::int64_t used) const;
  /// The epoch that a loader begins, which counts from there. `epoch` is the loader's own count, none for a new loader
  /// without set_epoch(). A sampler may have been told where to go on.
  virtual std::int64_t next_epoch(std::optional<std::int64_t> epoch) const { return epoch.value_or(0); }
  /// If ranks share the data, the size() of the rank with the most samples: drop_last then is an error on all ranks or
  /// none.
  virtual std::int64_t largest_size() const { return size(); }
  /// The number of samples to choose from, if known. The loader's data set must have exactly as many, because the rest
  /// of a larger one would never be used.
  virtual std::optional<std::int64_t> data_size() const { return std::nullopt; }
};

/// The order 0, 1, 2, ..., which a loader uses by default.
class TANDEM_API SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(const Dataset& data_source) : size_(data_source.size()) {}
  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> indices() const override;
  std::optional<std::int64_t> data_size() const override { return size_; }

 private:
  std::int64_t size_;
};

/// Options of RandomSampler, with PyTorch's names.
struct RandomSamplerOptions {
  bool replacement = false;                                // draw each sample independently of the others
  std::optional<std::int64_t> num_samples = std::nullopt;  // samples in an epoch; default: the size of the data set
};

/// A random order; the default options give the order of DataLoaderOptions::shuffle. If num_samples exceeds the data
/// set without replacement, several whole orders follow each other, and the last one is cut off.
class TANDEM_API RandomSampler final : public Sampler {
 public:
  /// Throws ConfigError for an empty data set or num_samples below 1.
  explicit RandomSampler(const Dataset& data_source, const RandomSamplerOptions& options = {});
  std::int64_t size() const override { return num_samples_; }
  std::vector<std::int64_t> indices() const override;
  std::optional<std::int64_t> data_size() const override { return data_size_; }

 private:
  std::int64_t data_size_;
  std::int64_t num_samples_;
  bool replacement_;
};

/// Draws sample i with a probability proportional to weights[i]; the weights need not sum to 1.
class TANDEM_API WeightedRandomSampler final : public Sampler {
 public:
  /// Takes one weight per sample of the data set. Throws ConfigError for a weight that is negative or not finite, for
  /// weights that are all 0, for num_samples below 1, and, without replacement, for more samples than positive weights.
  WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples, bool replacement = true);
  std::int64_t size() const override { return num_samples_; }
  std::vector<std::int64_t> indices() const override;

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
};

}  // namespace tandem::inline v0::data
