#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/buckets.h>

// Internal: ranks must hold the same model before they train it together, and train what was compared.

namespace tandem::inline v0::parallel {

/// Whether a parameter is in a DistributedDataParallel.
bool is_wrapped(const Tensor& parameter);
/// "parameter 'fc1.weight': f32 [256, 64], strides [64, 1], trained": a line for each parameter and buffer.
std::vector<std::string> describe(const nn::ModuleRef& module);

/// Compares lines across ranks: by a hash, and only if that differs by themselves. Throws ConfigError on every rank,
/// with `what` differs, the first differing line and its rank, and `advice`. A collective.
void check_same(ProcessGroup& group, const std::vector<std::string>& lines, const char* what, const char* advice);

/// Copies rank 0's parameters and buffers to all ranks. A collective.
void broadcast_state(ProcessGroup& group, const nn::ModuleRef& module);

/// A module as it was when it was wrapped.
class WrappedModule {
 public:
  explicit WrappedModule(nn::ModuleRef module);
  /// Throws ConfigError when parameters were moved, frozen, thawed, added or replaced since, or buffers were replaced.
  /// `trained` are the other parameters, whose leaves `observer` sees. Cheap while no module of the process changes.
  void check_unchanged(const std::vector<BucketMember>& trained, const autograd::LeafObserver& observer);

 private:
  nn::ModuleRef module_;
  std::vector<Tensor> frozen_;
  std::vector<Tensor> buffers_;
  std::uint64_t structure_version_;
};

}  // namespace tandem::inline v0::parallel
