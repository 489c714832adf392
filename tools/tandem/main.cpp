// The command-line tool: `tandem COMMAND [flags]`.

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include <tandem/core/error.h>

#include "command_line/program.h"
#include "tandem/commands.h"

namespace {

using namespace tool;

void print_help() {
  fmt::print(
      "Looks at and works with tandem, a deep-learning library.\n\nUsage: tandem COMMAND [flags]\n\nCommands:\n");
  for (const Command& command : commands()) {
    fmt::print("  {:<8}{}\n", command.name, command.summary);
  }
  fmt::print(
      "\nOptions:\n"
      "  --help, -h            Print this help and exit; after a command, its own\n"
      "  --version             Print the version and exit\n"
      "\nExamples:\n"
      "  tandem info           devices, instruction sets, threads, memory\n"
      "  tandem info --json    the same as one JSON object\n"
      "  tandem inspect model.safetensors    tensors and hashes of a file\n"
      "  tandem run -n 2 ./mlp    a program as two ranks\n");
}

int wrong_command(std::string_view name) {
  std::vector<std::string> known;
  for (const Command& command : commands()) {
    known.emplace_back(command.name);
  }
  const bool is_flag = name.starts_with('-');
  const std::string close = is_flag ? std::string() : tandem::core::nearest(std::string(name), known);
  cli::narrate(
      fmt::format("error: unknown {} {}{}", is_flag ? "flag" : "command", cli::shown(name),
                  close.empty() ? "; tandem --help lists the commands" : fmt::format("; did you mean {}?", close)));
  return 2;
}

int tandem_tool(int argc, char** argv) {
  if (argc < 2) {
    cli::narrate("error: a command must follow; tandem --help lists them");
    return 2;
  }
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    fmt::print("tandem {}\n", TANDEM_VERSION);
    return 0;
  }
  const auto command = std::ranges::find(commands(), name, &Command::name);
  return command == commands().end() ? wrong_command(name) : command->run(argc - 1, argv + 1);
}

}  // namespace

int main(int argc, char** argv) { return cli::run_main(argc, argv, tandem_tool); }
