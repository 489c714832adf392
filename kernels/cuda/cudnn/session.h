#pragma once

#include <map>
#include <mutex>
#include <optional>

#include <tandem/kernels/cuda/cudnn/activation_plan.h>
#include <tandem/kernels/cuda/cudnn/library.h>
#include <tandem/kernels/cuda/queue.h>

// Internal: cuDNN on one GPU.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// A handle and what was made with it. A handle is for one thread at a time: each call holds `mutex`.
struct Session {
  explicit Session(const cuda::Gpu& gpu);
  /// That of the queue's GPU, made at first use, kept to the end of the process. Null where it is not made yet and
  /// can't be, since the queue's work is being captured.
  static Session* of(const Queue& queue);

  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;                      // that of the softmax being started
  std::map<ActivationKey, std::optional<ActivationPlan>> plans;  // none for what cuDNN has no kernel for
};

}  // namespace tandem::inline v0::kernels::gpu::cudnn
