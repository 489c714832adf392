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

/// Stand-ins for a module's parameters and buffers on several devices. No module is cloned: a replica is a frame in
/// which the module's parameters mean those of its device. Replica 0 is the module itself.
///
/// Kept from forward to forward, it copies only what has changed. Logical CPU devices share the parameters' memory, so
/// nothing is copied there, and nobody may write to it. Buffers are copied: what a replica other than 0 writes there
/// is lost, as in PyTorch.
class TANDEM_API Replicas {
 public:
  /// The module must be on devices[0] whenever update() is called, and its parameters are packed into a
  /// ParameterStore. Throws ConfigError for no devices or one that is named twice (unless `allow_duplicates`). Warns,
  /// once, of GPUs that are too different to share a batch evenly.
  Replicas(nn::ModuleRef module, std::vector<Device> devices, bool allow_duplicates = false);
  ~Replicas();
  Replicas(Replicas&&) noexcept;
  Replicas& operator=(Replicas&&) noexcept;

  /// Makes the first `count` replicas equal to the module, for one forward pass; where gradients are recorded, those of
  /// all replicas are summed into the module's. Throws DeviceError naming the parameter or buffer that is not on
  /// devices[0].
  void update(std::size_t count);
  /// For threads that share these replicas: to be held from update() to the end of the forward pass. Throws
  /// ConfigError within a replica.
  std::unique_lock<std::mutex> lock();
  /// How many there are.
  std::size_t size() const noexcept;
  /// One for each replica.
  const std::vector<Device>& devices() const noexcept;
  /// In which replica `index` computes.
  core::Frame& frame(std::size_t index);
  /// What update() has copied so far, to all replicas together.
  std::int64_t bytes_copied() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
/// The weakest and the strongest of some GPUs, where one has less than three quarters of the memory or of the
/// multiprocessors of the other; else twice the same.
TANDEM_API std::pair<std::size_t, std::size_t> find_imbalance(const std::vector<cuda::DeviceProperties>& gpus);
}  // namespace detail

/// The replicas of a module as it is now, ready for a forward pass.
TANDEM_API Replicas replicate(const nn::ModuleRef& module, const std::vector<Device>& devices);

}  // namespace tandem::inline v0::parallel
