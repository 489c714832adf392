#pragma once

#include <string>

#include "command_line/command_line.h"

namespace bench {

/// Adds --model, read by parse_sizes(). Invalid text is refused.
void add_model_option(CLI::App& app, std::string& model);

}  // namespace bench
