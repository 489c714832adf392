#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/data/dataset.h>
#include <tandem/nn/sequential.h>
#include <tandem/optim/optimizer.h>
#include <tandem/parallel/data_parallel/data_parallel.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/distributed_sampler.h>
#include <tandem/telemetry/run_folder.h>

#include "cli.h"
#include "ranks.h"

// What the two samples do alike.

namespace example {

/// Linear, ReLU and dropout for each hidden size, then a Linear to `out`.
tandem::nn::Sequential make_mlp(std::int64_t in, const std::vector<std::int64_t>& hidden, std::int64_t out,
                                double dropout);

/// adam, adamw or sgd (with momentum 0.9).
std::unique_ptr<tandem::optim::Optimizer> make_optimizer(const std::string& name,
                                                         const std::vector<tandem::Tensor>& parameters, double lr,
                                                         double weight_decay);

/// How both samples train: shuffled batches, and a learning rate that falls to zero along a cosine (or stays).
struct Recipe {
  double weight_decay = 0;
  double dropout = 0;
  bool cosine = true;
};

/// What is measured on the test rows after each epoch.
struct Score {
  std::string name;                                                                  // "test_accuracy"
  std::function<double(const tandem::Tensor& output, const tandem::Tensor& y)> sum;  // over the rows given
  std::function<double(double mean)> finish;                                         // of the mean over all test rows
};

/// What an epoch came to, over all ranks.
struct EpochMetrics {
  double loss = 0;  // mean over the training samples
  double score = 0;
  double seconds = 0;  // of training on this rank, without the evaluation
};

/// Trains `model` and keeps the user and the run folder up to date.
class Trainer {
 public:
  /// `loss_fn(output, target)` is a mean over the batch. Throws ConfigError when the batch is larger than the data.
  using LossFunction = tandem::Tensor (*)(const tandem::Tensor& output, const tandem::Tensor& target);
  Trainer(const CommonOptions& options, const Recipe& recipe, const Rank& rank, tandem::nn::Sequential& model,
          const tandem::data::TensorDataset& train, LossFunction loss_fn, std::string unit);

  /// All epochs, with an evaluation after each. `folder` is that of the leading rank, null on others. Returns the
  /// seconds spent in training alone. Throws ValueError naming epoch and batch when the loss, or the output for a test
  /// row, is not finite.
  double run(tandem::telemetry::RunFolder* folder, const tandem::data::TensorDataset& test, const Score& score);

  const std::vector<EpochMetrics>& history() const noexcept { return history_; }
  /// With --diagnose, lines about the last epoch's steps, the same on all ranks; else empty.
  const std::string& diagnosis() const noexcept { return diagnosis_; }

 private:
  tandem::Tensor loss(const tandem::Tensor& x, const tandem::Tensor& y);
  tandem::Tensor predict(const tandem::Tensor& x);
  std::vector<double> sum_over_ranks(const std::vector<double>& sums) const;

  const CommonOptions& options_;
  Rank rank_;
  tandem::nn::Sequential& model_;
  std::optional<tandem::parallel::DataParallel<tandem::nn::Sequential>> replicas_;             // with --parallel dp
  std::optional<tandem::parallel::DistributedDataParallel<tandem::nn::Sequential>> together_;  // with --parallel ddp
  std::shared_ptr<const tandem::parallel::DistributedSampler> sampler_;
  const tandem::data::TensorDataset& train_;
  LossFunction loss_fn_;
  std::string unit_;
  bool cosine_;
  std::unique_ptr<tandem::optim::Optimizer> optimizer_;
  std::vector<EpochMetrics> history_;
  std::string diagnosis_;
};

/// The fields of config.json that both samples share.
tandem::telemetry::Fields common_fields(const std::string& program, const CommonOptions& options, const Recipe& recipe,
                                        const Rank& rank);

}  // namespace example
