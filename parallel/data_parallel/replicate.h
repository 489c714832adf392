#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/core/cuda.h>
#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/nn/module_ref.h>
#include <tandem/tensor/frame.h>

namespace tandem::inline v0::parallel {

/// Stand-ins for a module's parameters and buffers on several devices. The module is not cloned: a replica is a frame
/// in which the module's parameters refer to those of the replica's device. Replica 0 is the module itself.
///
/// Kept from forward to forward, so that only changes are copied. Logical CPU devices share the parameters' memory:
/// nothing is copied, and replicas must not write to it. Buffers are copied; writes by replicas other than 0 are lost,
/// as in PyTorch.
class TANDEM_API Replicas {
 public:
  /// The module must be on devices[0] whenever update() is called. Its parameters are packed into a ParameterStore.
  /// Throws ConfigError for an empty list and, unless `allow_duplicates`, for a repeated device, and CaptureError while
  /// this thread records a step. Warns once of GPUs that are too different to share a batch evenly.
  Replicas(nn::ModuleRef module, std::vector<Device> devices, bool allow_duplicates = false);
  ~Replicas();
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;

  /// Makes the first `count` replicas equal to the module, for one forward pass. If gradients are recorded, those of
  /// all replicas are summed into the module's. A captured step copies all buffers, and all parameters that are on
  /// other GPUs, in each replay. Throws DeviceError naming the parameter or buffer that is not on devices[0].
  void update(std::size_t count);
  /// For threads that share these replicas: hold the lock from update() to the end of the forward pass. Throws
  /// ConfigError within a replica.
  std::unique_lock<std::mutex> lock();
  /// The number of replicas.
  std::size_t size() const noexcept;
  /// The devices, one per replica.
  const std::vector<Device>& devices() const noexcept;
  /// The frame in which replica `index` computes.
  core::Frame& frame(std::size_t index);
  /// Bytes that update() has copied so far, to all replicas together.
  std::int64_t bytes_copied() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
/// The indices of the weakest and the strongest GPU, if one has less than three quarters of the other's memory or
/// multiprocessors. Otherwise the same index twice.
TANDEM_API std::pair<std::size_t, std::size_t> find_imbalance(const std::vector<cuda::DeviceProperties>& gpus);
}  // namespace detail

/// Replicas of a module in its present state, ready for a forward pass.
TANDEM_API Replicas replicate(const nn::ModuleRef& module, const std::vector<Device>& devices);

}  // namespace tandem::inline v0::parallel
