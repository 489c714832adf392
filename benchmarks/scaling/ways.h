#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/tensor/tensor.h>

#include "step/step.h"

namespace bench::scaling {

/// How devices work together.
enum class Parallel {
  plain,   // one device
  dp,      // DataParallel, the loss on gathered outputs
  dp_loss  // DataParallel::loss
};
/// "plain", "dp", "dp_loss"
const char* name_of(Parallel parallel);

/// One way of training the model.
struct Way {
  Parallel parallel = Parallel::plain;
  int devices = 1;
  int threads = 1;         // of the pool, for all devices together
  std::int64_t batch = 1;  // of all devices together

  bool operator==(const Way&) const = default;
};

/// A Step that can show what it computes.
class TrainingStep : public Step {
 public:
  /// The gradients at the weights it has, and the loss behind them; no step is taken.
  virtual std::vector<tandem::Tensor> gradients_and_loss() = 0;
};

/// A model of its own on devices 0, 1, ... of that type, which starts from the Spec's weights. `way.batch` counts, not
/// the Spec's. Its phases are told apart as core/step_times.h says. run() ends when the devices have.
std::unique_ptr<TrainingStep> make_step(const Spec& spec, const Way& way, tandem::DeviceType type);

/// How far apart gradients (and losses) of two ways with one batch are: the largest max|a - b| / max|b| of a tensor.
double difference(TrainingStep& a, TrainingStep& b);

}  // namespace bench::scaling
