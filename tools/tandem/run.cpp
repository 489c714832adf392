#include <csignal>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/parallel/job/launch.h>

#include "command_line/program.h"
#include "tandem/commands.h"
#include "tandem/run_options.h"

namespace tool {

namespace {

constexpr int kNoProgram = 127;  // the exit code of shells for this case

}  // namespace

int run(int argc, const char* const* argv) {
  using namespace tandem;
  RunCommand command = read_run_command(argc, argv);
  if (command.exit_code) {
    return *command.exit_code;
  }
  parallel::LaunchOptions& options = command.options;
  try {
    options.file = parallel::find_program(options.command.front());
  } catch (const ConfigError& error) {
    cli::narrate(fmt::format("error: {}", error.what()));
    return kNoProgram;
  }
  if (options.nodes > 1) {
    options.token = parallel::JobToken::from_environment();
  }
  std::signal(SIGCHLD, SIG_DFL);  // the parent process may ignore the signal, and that is inherited
  options.take_signals = true;
  options.narrate = true;
  return parallel::launch(options).exit_code;
}

}  // namespace tool
