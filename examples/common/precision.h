#pragma once

#include <cstdint>
#include <string>

#include <tandem/autograd/autocast.h>
#include <tandem/checkpoint/run.h>
#include <tandem/optim/grad_scaler.h>
#include <tandem/optim/optimizer.h>
#include <tandem/telemetry/progress.h>
#include <tandem/telemetry/run_folder.h>

#include "cli.h"

// --precision: f32, or products in 16 bits with parameters in f32.

namespace example {

/// Adds --precision.
void add_precision(CLI::App& app, std::string& precision);

/// The types in which a sample computes. With f16 the loss is scaled, and steps whose gradients overflow are left out:
///
///     {
///       const AutocastScope autocast = precision.autocast();
///       loss = cross_entropy(model(x), y);
///     }
///     precision.backward(loss);
///     precision.step(adam);
///     precision.note_step();
class Precision {
 public:
  /// `name` is "f32", "bf16" or "f16".
  explicit Precision(const std::string& name);

  /// For forward passes and losses. Does nothing with f32.
  tandem::AutocastScope autocast() const;
  /// The backward pass of a loss; of the scaled one with f16.
  void backward(const tandem::Tensor& loss) { scaler_.scale(loss).backward(); }
  /// Steps the optimiser. With f16 the step is left out if a gradient is not finite, and the scale adapts.
  void step(tandem::optim::Optimizer& optimizer);

  /// Makes the scale and the counts a part of the run, with f16.
  void track(tandem::checkpoint::Run& run);
  /// Call after each step, outside of captured ones: counts the steps that were left out. Waits for the device with
  /// f16.
  void note_step();
  /// Shows that count in the progress line, with f16.
  void show(tandem::telemetry::Progress& progress) const;
  /// "loss_scale" and "skipped_steps" with f16, otherwise nothing.
  tandem::telemetry::Fields fields() const;
  /// "loss scale 32768; 1 of 1800 steps left out" with f16, otherwise empty.
  std::string summary() const;

 private:
  tandem::DType dtype_;
  bool is_lowered_;
  tandem::optim::GradScaler scaler_;  // acts as if it were not there unless f16
  double scale_ = 0;                  // after the last step
  std::int64_t steps_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace example
