#include <tandem/tensor/idle_gpus.h>

#include <vector>

#include <fmt/format.h>

#include <tandem/core/cuda.h>
#include <tandem/core/warning.h>

namespace tandem::inline v0::detail {

std::string IdleGpus::note_step(int gpus, bool (*is_used)(int gpu)) {
  // After the step that decides, no thread writes the counter: lanes would pass its cache line around at every step.
  if (gpus < 2 || steps_.load(std::memory_order_relaxed) >= kSteps ||
      steps_.fetch_add(1, std::memory_order_relaxed) + 1 != kSteps || parallel_.load(std::memory_order_relaxed)) {
    return "";
  }
  std::vector<std::string> idle;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (!is_used(gpu)) {
      idle.push_back(to_string(Device(DeviceType::cuda, gpu)));
    }
  }
  if (idle.empty()) {
    return "";
  }
  return fmt::format(
      "{} GPUs are visible, and after {} steps nothing has used {}: a model trains on several once it is wrapped "
      "(parallel::DataParallel), or as ranks (`tandem run -n {} <program>`, parallel::DistributedDataParallel). Set "
      "CUDA_VISIBLE_DEVICES where fewer are meant",
      gpus, kSteps, fmt::join(idle, ", "), gpus);
}

IdleGpus& idle_gpus() noexcept {
  static constinit IdleGpus watch;
  return watch;
}

void note_gpu_step() {
  if (const std::string text = idle_gpus().note_step(cuda::device_count(), &cuda_is_used); !text.empty()) {
    core::warn(text);
  }
}

}  // namespace tandem::inline v0::detail
