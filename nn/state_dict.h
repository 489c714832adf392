#pragma once

#include <string>
#include <vector>

#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::nn {

/// Tensors by name: the saved form of a module.
using tandem::StateDict;

/// Names that a non-strict load skipped, and the prefix that any load removed.
struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
  std::string stripped;                 // prefix removed from every name ("module." of a model saved wrapped), or empty
};

}  // namespace tandem::inline v0::nn
