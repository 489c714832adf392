#pragma once

#include <string>

#include <tandem/core/export.h>

namespace tandem::inline v0::core {

/// The name of this machine.
TANDEM_API std::string host_name();

}  // namespace tandem::inline v0::core
