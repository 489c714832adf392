#pragma once

#include <string>

#include "command_line/command_line.h"

namespace bench {

/// --model, as parse_sizes() reads it; what that does not take is refused.
void add_model_option(CLI::App& app, std::string& model);

}  // namespace bench
