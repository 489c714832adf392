#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::nn {

/// Tensors by name: what a module saves.
using tandem::StateDict;

/// What a non-strict load left alone, and what any load did to the names.
struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
  std::string stripped;                 // taken off every name: "module." of a model that was saved wrapped; or empty
};

}  // namespace tandem::inline v0::nn
