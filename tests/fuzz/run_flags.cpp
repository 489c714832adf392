#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/output.h"
#include "fuzz/promises.h"
#include "fuzz/targets.h"
#include "tandem/run_options.h"

namespace tandem::fuzz {

void run_flags(Bytes input) {
  const std::vector<std::string> arguments = arguments_of("tandem run", input);
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  check_promises(input.size(), [&] {
    Output output;
    const tool::RunCommand command = tool::read_run_command(static_cast<int>(argv.size()), argv.data());
    const parallel::LaunchOptions& options = command.options;
    promise(!command.exit_code || *command.exit_code == 0 || *command.exit_code == 2, "the exit code is 0 or 2");
    const std::string_view err = output.err();
    promise(err.empty() == (command.exit_code != 2), "an error goes to stderr, and nothing else does");
    if (!err.empty()) {
      promise(err.starts_with("error: ") && err.size() <= 80 * 24, "an error is a line that fits on a screen");
      promise(err.find('\n') == err.size() - 1, "an error is one line");
    }
    if (!command.exit_code) {
      const std::vector<std::string>& program = options.command;
      promise(!program.empty() && program.size() < arguments.size() &&
                  std::equal(program.rbegin(), program.rend(), arguments.rbegin()),
              "a program has its arguments as they were given");
      promise(options.ranks >= 1 && options.ranks <= 4096 && options.nodes >= 1, "there are ranks and nodes");
      promise(options.node >= 0 && options.node < options.nodes, "this is one of the nodes");
      promise(options.nodes == 1 || options.port != 0, "several nodes have a place to meet");
      promise(options.kill_timeout.count() >= 0 && options.heartbeat_limit.count() >= 2000, "times are in range");
    }
  });
}

}  // namespace tandem::fuzz
