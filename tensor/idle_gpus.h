#pragma once

#include <atomic>
#include <string>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

// Internal: detects GPUs that stay idle without a stated reason.

namespace tandem::inline v0::detail {

/// Watches a training process and warns once if it leaves visible GPUs idle.
class IdleGpus {
 public:
  /// The number of steps that distinguishes a training run from a trial.
  static constexpr int kSteps = 100;

  /// Records that the program made replicas or ranks. Such a program knows about the other GPUs and may leave some out.
  void note_parallel() noexcept { parallel_.store(true, std::memory_order_relaxed); }
  /// Records that an optimiser has made a step on one of `gpus` GPUs. Returns the text of a warning if one is due, else
  /// "".
  std::string note_step(int gpus, bool (*is_used)(int gpu));

 private:
  std::atomic<bool> parallel_{false};
  std::atomic<int> steps_{0};
};

/// The watch of this process.
TANDEM_API IdleGpus& idle_gpus() noexcept;

/// Whether memory of the GPU was ever requested. Does not initialise the GPU.
bool cuda_is_used(int gpu) noexcept;

/// Records an optimiser step on a GPU and warns if a warning is due.
TANDEM_API void note_gpu_step();
inline void note_step(Device device) {
  if (device.type == DeviceType::cuda) {
    note_gpu_step();
  }
}

}  // namespace tandem::inline v0::detail
