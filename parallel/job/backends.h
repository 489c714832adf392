#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// A communication backend, by which ranks exchange data.
struct TANDEM_API BackendInfo {
  std::string name;     // "gloo"
  bool usable = false;  // by this build on this machine
  std::string why;      // the backend's purpose; for an unusable backend, the reason and the remedy
};

/// All backends that process groups know, usable or not.
TANDEM_API std::vector<BackendInfo> backends();

}  // namespace tandem::inline v0::parallel
