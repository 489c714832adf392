#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/buckets.h>

// Internal: ranks must hold the same model before they train it together, train what was compared, and keep the same
// buffers.

namespace tandem::inline v0::parallel {

struct DistributedOptions;

/// Whether a parameter is in a DistributedDataParallel.
bool is_wrapped(const Tensor& parameter);
/// "parameter 'fc1.weight': f32 [256, 64], strides [64, 1], trained": a line for each parameter and buffer.
std::vector<std::string> describe(const nn::ModuleRef& module);

/// Throws ConfigError for a buffer that requires a gradient: it would stay that of one rank.
void check_takes_no_gradient(const std::string& name, const Tensor& buffer);

/// A module as it was when it was wrapped, and its buffers on all ranks.
class WrappedModule {
 public:
  /// With `init_sync` a collective: all ranks get the parameters and buffers of rank 0.
  WrappedModule(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options);
  /// Throws ConfigError when parameters were moved, frozen, thawed, added or replaced since, or buffers were replaced.
  /// `trained` are the other parameters, whose leaves `observer` sees. Cheap while no module of the process changes.
  void check_unchanged(const std::vector<BucketMember>& trained, const autograd::LeafObserver& observer);
  /// Whether sync_batch_norm() was called for the module.
  bool syncs_batch_norm() const { return nn::detail::has_batch_exchange(module_); }
  /// With `broadcast_buffers` a collective: all ranks get the buffers of rank `from`, by one broadcast for each dtype
  /// and device. A graph that saved a buffer stays valid if the buffer had the broadcast values already.
  void broadcast_buffers(ProcessGroup& group, int from);

 private:
  struct SharedBuffer {
    Tensor buffer;
    std::uint32_t version;  // of the buffer, when all ranks had the same values
    Tensor place{};         // a part of one of `flats_`; undefined without broadcast_buffers
  };
  void make_places();
  static void take(SharedBuffer& shared);

  nn::ModuleRef module_;
  std::vector<Tensor> frozen_;
  std::vector<SharedBuffer> buffers_;
  std::vector<Tensor> flats_;  // buffers of one dtype and device side by side
  std::uint64_t structure_version_;
};

}  // namespace tandem::inline v0::parallel
