#pragma once

#include <string>

namespace cli {

/// The processor's name as the system has it; "unknown" where it does not say.
std::string cpu_model();

}  // namespace cli
