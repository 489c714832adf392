#pragma once

#include <map>
#include <mutex>
#include <optional>

#include <tandem/kernels/cuda/cudnn/activation_plan.h>
#include <tandem/kernels/cuda/cudnn/library.h>
#include <tandem/kernels/cuda/launch/queue.h>

// cuDNN on one GPU.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// A handle and the objects made with it. Only one thread may use a handle at a time, so each call holds `mutex`.
struct Session {
  explicit Session(const cuda::Gpu& gpu);
  /// Returns the session of the queue's GPU, made at first use and kept to the end of the process. Returns null if the
  /// session does not exist yet and can't be made, because the queue's work is being captured.
  static Session* of(const Queue& queue);

  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;                      // describes the tensors of the softmax being started
  std::map<ActivationKey, std::optional<ActivationPlan>> plans;  // nullopt if cuDNN has no kernel
};

}  // namespace tandem::inline v0::kernels::gpu::cudnn
