#pragma once

#include <string>
#include <vector>

#include "command_line/command_line.h"

namespace bench {

/// Adds --model, read by parse_sizes(); with `nets` also the name of a net. Invalid text is refused.
void add_model_option(CLI::App& app, std::string& model, const std::vector<std::string>& nets = {});

}  // namespace bench
