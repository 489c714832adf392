#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/checkpoint/run.h>
#include <tandem/data/dataset.h>
#include <tandem/nn/container.h>
#include <tandem/optim/optimizer.h>
#include <tandem/parallel/data_parallel/data_parallel.h>
#include <tandem/parallel/distributed/distributed_data_parallel.h>
#include <tandem/parallel/distributed/distributed_sampler.h>
#include <tandem/telemetry/run_folder.h>

#include "cli.h"
#include "precision.h"
#include "ranks.h"

// Training code that the two samples share.

namespace example {

/// Linear, ReLU and dropout for each hidden size, then a Linear to `out`.
tandem::nn::Sequential make_mlp(std::int64_t in, const std::vector<std::int64_t>& hidden, std::int64_t out,
                                double dropout);

/// adam, adamw or sgd (with momentum 0.9).
std::unique_ptr<tandem::optim::Optimizer> make_optimizer(const std::string& name,
                                                         const std::vector<tandem::Tensor>& parameters, double lr,
                                                         double weight_decay);

/// Training settings of a sample: shuffled batches, and a learning rate that falls to zero along a cosine (or stays
/// constant).
struct Recipe {
  double weight_decay = 0;
  double dropout = 0;
  bool cosine = true;
};

/// A measure taken on the test rows after each epoch.
struct Score {
  std::string name;                                                                  // "test_accuracy"
  std::function<double(const tandem::Tensor& output, const tandem::Tensor& y)> sum;  // sum over the given rows
  std::function<double(double mean)> finish;                                         // of the mean over all test rows
};

/// The results of each epoch, over all ranks.
struct History {
  std::vector<double> loss = {};  // mean over the training samples
  std::vector<double> score = {};
  std::vector<double> seconds = {};  // training time on this rank, without evaluation
};

/// The run that the options ask for: a new one, or one that goes on.
std::unique_ptr<tandem::checkpoint::Run> open_run(const CommonOptions& options, const std::string& program);

/// Trains `model`, shows progress and writes the run folder.
class Trainer {
 public:
  /// `loss_fn(output, target)` returns a mean over the batch. Throws ConfigError when the batch is larger than the
  /// data.
  using LossFunction = tandem::Tensor (*)(const tandem::Tensor& output, const tandem::Tensor& target);
  Trainer(const CommonOptions& options, const Recipe& recipe, const Rank& rank, tandem::nn::Sequential& model,
          const tandem::data::TensorDataset& train, LossFunction loss_fn, std::string unit);

  /// Runs all epochs that the run has not made yet, with an evaluation after each. Returns the seconds spent in
  /// training alone. Throws ValueError with the epoch and batch when the loss, or the output for a test row, is not
  /// finite.
  double run(tandem::checkpoint::Run& run, const tandem::data::TensorDataset& test, const Score& score);

  const History& history() const noexcept { return history_; }
  /// With --report, a report on the last epoch's steps, the same on all ranks; else empty.
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
  Precision precision_;
  std::unique_ptr<tandem::optim::Optimizer> optimizer_;
  History history_;
  std::string diagnosis_;
};

/// The fields of config.json that both samples share.
tandem::telemetry::Fields common_fields(const std::string& program, const CommonOptions& options, const Recipe& recipe,
                                        const Rank& rank);

}  // namespace example
