#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/data/dataset.h>

namespace tandem::inline v0::data {

/// Which samples an epoch has, and in which order: DataLoaderOptions::sampler.
class TANDEM_API Sampler {
 public:
  virtual ~Sampler() = default;
  /// Samples in an epoch; 0, as for a rank without a part of the data, is an epoch without batches.
  virtual std::int64_t size() const = 0;
  /// The indices of one epoch, size() of them. Random choices must come from current_generator() alone: the loader
  /// seeds it by epoch, which makes the order a function of the loader's seed and the epoch.
  virtual std::vector<std::int64_t> indices() const = 0;
  /// Where ranks share the data, size() of the rank that has most: drop_last is an error for all of them or for none.
  virtual std::int64_t largest_size() const { return size(); }
  /// Of how many samples it chooses, where it knows: the data set of its loader must have as many, since one that has
  /// more would keep the rest to itself.
  virtual std::optional<std::int64_t> data_size() const { return std::nullopt; }
};

/// 0, 1, 2, ...: what a loader does by itself.
class TANDEM_API SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(const Dataset& data_source) : size_(data_source.size()) {}
  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> indices() const override;
  std::optional<std::int64_t> data_size() const override { return size_; }

 private:
  std::int64_t size_;
};

/// PyTorch's names.
struct RandomSamplerOptions {
  bool replacement = false;                                // draw each sample independently of the others
  std::optional<std::int64_t> num_samples = std::nullopt;  // in an epoch; default: as many as there are
};

/// A random order, that of DataLoaderOptions::shuffle unless options say otherwise. Without replacement, more samples
/// than there are come as one whole order after another, the last one cut off.
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

/// Sample i with a probability in proportion to weights[i]; the weights need not sum to 1.
class TANDEM_API WeightedRandomSampler final : public Sampler {
 public:
  /// One weight per sample of the data set. Throws ConfigError for a weight that is negative or not finite, weights
  /// that are all 0, num_samples below 1, and, without replacement, more samples than weights above 0.
  WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples, bool replacement = true);
  std::int64_t size() const override { return num_samples_; }
  std::vector<std::int64_t> indices() const override;

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  bool replacement_;
};

}  // namespace tandem::inline v0::data
