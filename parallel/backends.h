#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// A way in which ranks can talk.
struct TANDEM_API BackendInfo {
  std::string name;     // "gloo"
  bool usable = false;  // by this build on this machine
  std::string why;      // what it is for; where it is not usable, why not, and what to do
};

/// All backends that process groups know, usable or not.
TANDEM_API std::vector<BackendInfo> backends();

}  // namespace tandem::inline v0::parallel
