#pragma once

#include <string>
#include <vector>

#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>

// Internal: ranks must hold the same model before they train it together.

namespace tandem::inline v0::parallel {

/// "parameter 'fc1.weight': f32 [256, 64], strides [64, 1], trained": a line for each parameter and buffer.
std::vector<std::string> describe(const nn::ModuleRef& module);

/// Compares lines across ranks: by a hash, and only if that differs by themselves. Throws ConfigError on every rank,
/// with `what` differs, the first line that does and whose, and `advice`. A collective.
void check_same(ProcessGroup& group, const std::vector<std::string>& lines, const char* what, const char* advice);

/// Everybody's parameters and buffers become those of rank 0. A collective.
void broadcast_state(ProcessGroup& group, const nn::ModuleRef& module);

}  // namespace tandem::inline v0::parallel
