#pragma once

#include <optional>
#include <string>

#include <tandem/parallel/job/launch.h>

namespace tool {

/// The parsed command line of `tandem run`.
struct RunCommand {
  tandem::parallel::LaunchOptions options;
  std::optional<int> exit_code;  // set when the tool should end: after --help, or for a wrong command line
};

/// Reads flags up to the program's name and takes everything after it as the program's command. Omitted flags default
/// to torchrun's PET_ variables. Throws tandem::ConfigError for an invalid variable.
RunCommand read_run_command(int argc, const char* const* argv);

}  // namespace tool
