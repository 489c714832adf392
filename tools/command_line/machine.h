#pragma once

#include <string>

namespace cli {

/// The processor's name as the system reports it, or "unknown".
std::string cpu_model();

}  // namespace cli
