#pragma once

#include <tandem/core/export.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {

/// While a DetectAnomaly exists, each recorded op of its thread checks its result. The first result with NaN or
/// infinity is a ValueError that names its layer, as with the forward half of torch.autograd.detect_anomaly. Steps take
/// several times as long. Captured steps are not checked.
class DetectAnomaly {
 public:
  [[nodiscard]] explicit DetectAnomaly(bool enabled = true) noexcept : saved_(core::thread_state().detects_anomaly) {
    core::thread_state().detects_anomaly = enabled;
  }
  ~DetectAnomaly() { core::thread_state().detects_anomaly = saved_; }
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool saved_;
};

/// Whether no element is infinite or NaN. Integers are finite. Waits for the device.
TANDEM_API bool all_finite(const Tensor& tensor);

/// Internal: throws the ValueError of DetectAnomaly.
void check_anomaly(const char* op, const Tensor& result);

}  // namespace tandem::inline v0::autograd
