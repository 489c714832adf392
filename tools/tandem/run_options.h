#pragma once

#include <optional>
#include <string>

#include <tandem/parallel/launch/launch.h>

namespace tool {

/// What `tandem run` was told.
struct RunCommand {
  tandem::parallel::LaunchOptions options;
  std::optional<int> exit_code;  // the program is to end: it was only asked for help, or the command line is wrong
};

/// Reads flags up to the program's name, and takes all that follows as the program's own. What no flag says is taken
/// from torchrun's PET_ variables. Throws tandem::ConfigError for one of those that is wrong.
RunCommand read_run_command(int argc, const char* const* argv);

}  // namespace tool
