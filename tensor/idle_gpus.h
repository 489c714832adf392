#pragma once

#include <atomic>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Internal: GPUs that have nothing to do, and nobody says why.

namespace tandem::inline v0::detail {

/// Watches a process train, and says once when it leaves GPUs idle that it can see.
class IdleGpus {
 public:
  /// So many steps tell a training from a trial.
  static constexpr int kSteps = 100;

  /// Replicas or ranks were made: who did that knows of the other GPUs, and may leave some out.
  void note_parallel() noexcept { parallel_.store(true, std::memory_order_relaxed); }
  /// An optimiser has made a step on a GPU, of which there are `gpus`. The text of the warning that is due, if any.
  std::string note_step(int gpus, bool (*is_used)(int gpu));

 private:
  std::atomic<bool> parallel_{false};
  std::atomic<int> steps_{0};
};

/// Of this process.
TANDEM_API IdleGpus& idle_gpus() noexcept;

/// Whether memory of the GPU was ever asked for. Does not touch it.
bool cuda_is_used(int gpu) noexcept;

/// An optimiser has made a step there: warns when that is due.
TANDEM_API void note_gpu_step();
inline void note_step(Device device) {
  if (device.type == DeviceType::cuda) {
    note_gpu_step();
  }
}

}  // namespace tandem::inline v0::detail
