#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/tensor/tensor.h>

#include "step/step.h"

namespace bench::scaling {

/// How several devices work together.
enum class Parallel {
  plain,   // one device
  dp,      // DataParallel, with the loss on gathered outputs
  dp_loss  // DataParallel::loss
};
/// The name: "plain", "dp" or "dp_loss".
const char* name_of(Parallel parallel);

/// One way of training the model.
struct Way {
  Parallel parallel = Parallel::plain;
  int devices = 1;
  int threads = 1;         // threads of the pool for all devices together
  std::int64_t batch = 1;  // batch for all devices together
  bool is_captured = false;

  bool operator==(const Way&) const = default;
};

/// A Step that can expose its gradients.
class TrainingStep : public Step {
 public:
  /// The gradients at the current weights, followed by the loss. Takes no step.
  virtual std::vector<tandem::Tensor> gradients_and_loss() = 0;
};

/// A model of its own on devices 0, 1, ... of that type, starting from the Spec's weights. `way.batch` replaces the
/// Spec's batch. The step marks its phases as in core/step_times.h. run() returns when the devices are done.
std::unique_ptr<TrainingStep> make_step(const Spec& spec, const Way& way, tandem::DeviceType type);

/// The difference between the gradients (and losses) of two ways with one batch: the largest max|a - b| / max|b| of a
/// tensor.
double difference(TrainingStep& a, TrainingStep& b);

}  // namespace bench::scaling
