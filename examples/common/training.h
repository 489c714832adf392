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
#include <tandem/telemetry/run_folder.h>

#include "cli.h"

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

/// One epoch's means over the training samples.
struct EpochMetrics {
  double loss = 0;
  double seconds = 0;  // of training, without the evaluation
};

/// Trains `model` and keeps the user and the run folder up to date.
class Trainer {
 public:
  /// `loss_fn(output, target)` is a mean over the batch. Throws ConfigError when the batch is larger than the data.
  using LossFunction = tandem::Tensor (*)(const tandem::Tensor& output, const tandem::Tensor& target);
  Trainer(const CommonOptions& options, const Recipe& recipe, tandem::nn::Sequential& model,
          const tandem::data::TensorDataset& train, LossFunction loss_fn, std::string unit);

  /// Makes the numbers to show and to log of the model's output for all test rows.
  using EvaluateFunction = std::function<std::vector<std::pair<std::string, double>>(const tandem::Tensor& output)>;
  /// All epochs, with an evaluation after each. Returns the seconds spent in training alone.
  /// Throws ValueError naming epoch and batch when the loss, or the output for a test row, is not finite.
  double run(tandem::telemetry::RunFolder& folder, const tandem::Tensor& test_x, const EvaluateFunction& evaluate);

  const std::vector<EpochMetrics>& history() const noexcept { return history_; }

 private:
  tandem::Tensor loss(const tandem::Tensor& x, const tandem::Tensor& y);
  tandem::Tensor predict(const tandem::Tensor& x);

  const CommonOptions& options_;
  tandem::nn::Sequential& model_;
  std::optional<tandem::parallel::DataParallel<tandem::nn::Sequential>> replicas_;  // with --parallel dp
  const tandem::data::TensorDataset& train_;
  LossFunction loss_fn_;
  std::string unit_;
  bool cosine_;
  std::unique_ptr<tandem::optim::Optimizer> optimizer_;
  std::vector<EpochMetrics> history_;
};

/// The fields of config.json that both samples share.
tandem::telemetry::Fields common_fields(const std::string& program, const CommonOptions& options, const Recipe& recipe);

}  // namespace example
