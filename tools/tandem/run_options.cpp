#include "tandem/run_options.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/cores.h>
#include <tandem/core/cuda.h>
#include <tandem/core/error.h>
#include <tandem/parallel/rendezvous/environment.h>

#include "command_line/command_line.h"
#include "command_line/program.h"

namespace tool {

namespace {

using namespace tandem;

struct Flags {
  std::string ranks = "1";
  int nodes = 1;
  int node = 0;
  std::string rdzv;
  int max_restarts = 0;
  int elastic = 0;
  std::string log_dir;
  std::string program;
  bool standalone = false;
  double kill_timeout = 30;
  double heartbeat_limit = 10;
};

// Defaults from torchrun's variables, which Kubeflow's TrainJob relies on.
void take_defaults(Flags& flags) {
  const auto text = [](const char* name, std::string& target) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      target = value;
    }
  };
  const auto whole = [&](const char* name, int& target, int low) {
    std::string value;
    text(name, value);
    if (!value.empty() && (!cli::read_whole(value, target) || target < low)) {
      throw ConfigError(fmt::format("{}='{}': expected a whole number of {} or more", name, cli::shown(value), low));
    }
  };
  text("PET_NPROC_PER_NODE", flags.ranks);
  whole("PET_NNODES", flags.nodes, 1);
  whole("PET_NODE_RANK", flags.node, 0);
  whole("PET_MAX_RESTARTS", flags.max_restarts, 0);
  std::string host;
  std::string port = "29500";
  text("PET_MASTER_ADDR", host);
  text("PET_MASTER_PORT", port);
  if (!host.empty() && flags.nodes > 1) {
    flags.rdzv = fmt::format("{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
  }
  text("PET_RDZV_ENDPOINT", flags.rdzv);
  text("PET_LOG_DIR", flags.log_dir);
}

int number_of_ranks(const std::string& text) {
  int count = 0;
  if (text == "gpu" || (text == "auto" && cuda::is_available())) {
    if (!cuda::is_available()) {
      throw CLI::ValidationError("--nproc-per-node", fmt::format("no GPUs to count: {}", cuda::why_unavailable()));
    }
    return cuda::device_count();
  }
  if (text == "auto" || text == "cpu") {
    return core::available_cores();
  }
  if (!cli::read_whole(text, count) || count < 1 || count > 4096) {
    cli::refuse("--nproc-per-node", "a whole number from 1 to 4096, auto, cpu or gpu", text);
  }
  return count;
}

void add_flags(CLI::App& app, Flags& flags) {
  constexpr int kMost = std::numeric_limits<int>::max();
  cli::add_value(app, "--nproc-per-node,-n", "N", "Ranks on this host; auto: one for each GPU, or else for each core",
                 flags.ranks, [&flags](const std::string& text) { flags.ranks = text; });
  cli::add_whole(app, "--nnodes", "Hosts, each with a tandem run of its own", flags.nodes, 1, kMost);
  cli::add_whole(app, "--node-rank", "Which of the hosts this is; 0 has the store", flags.node, 0, kMost);
  cli::add_text(app, "--rdzv", "HOST:PORT", "Where node 0's store listens; on one host it is not needed", flags.rdzv);
  app.add_flag("--standalone", flags.standalone, "One host, whatever the environment says");
  cli::add_whole(app, "--max-restarts", "How often all ranks start again after a failure, and lost ones with --elastic",
                 flags.max_restarts, 0, kMost);
  cli::add_whole(app, "--elastic", "Go on without lost ranks while so many are left; 0: one lost rank ends the job",
                 flags.elastic, 0, kMost);
  cli::add_path(app, "--log-dir", "A folder for rank0.out, rank0.err, ...; else each line is shown behind [rank]",
                flags.log_dir);
  cli::add_number(app, "--kill-timeout", "SEC", "From SIGTERM to SIGKILL", flags.kill_timeout, 0, 86'400);
  cli::add_number(app, "--heartbeat-limit", "SEC", "A rank that is not heard for so long is lost",
                  flags.heartbeat_limit, 2, 86'400);
  // Only for --help: the program's name is never given to the parser.
  app.add_option("PROGRAM", flags.program, "What is run; all that follows is the program's own");
  app.footer(
      "Each rank finds itself by torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR,\n"
      "...), whose PET_ variables are defaults here. The exit code is that of the\n"
      "first rank that failed, or 128 + N where signal N ended it.\n\n"
      "Examples:\n"
      "  tandem run -n 2 ./mlp --epochs 5\n"
      "  tandem run -n auto --max-restarts 3 --log-dir logs ./mlp\n"
      "  tandem run -n 4 --elastic 2 --max-restarts 3 ./mlp\n"
      "  export TANDEM_JOB_TOKEN=...          the same 64 digits on both hosts\n"
      "  tandem run -n 4 --nnodes 2 --node-rank 0 --rdzv 10.0.0.1:29500 ./mlp\n"
      "  tandem run -n 4 --nnodes 2 --node-rank 1 --rdzv 10.0.0.1:29500 ./mlp");
}

// Returns the position of the program's name, where tandem's own flags end. Flag names may contain '_' for '-', as
// torchrun's do.
std::size_t split_command(const CLI::App& app, std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (argument == "--") {
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
      return i;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      return i;
    }
    const std::size_t equals = argument.find('=');
    if (argument.starts_with("--")) {
      std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(std::min(equals, argument.size())),
                   '_', '-');
    }
    const std::string name = argument.starts_with("--") ? argument.substr(0, equals) : argument.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool has_value_inside = equals != std::string::npos || name.size() != argument.size();
    if (option != nullptr && option->get_type_size() != 0 && !has_value_inside) {
      ++i;
    }
  }
  return arguments.size();
}

void place_store(const Flags& flags, parallel::LaunchOptions& options) {
  if (flags.standalone || flags.rdzv.empty()) {
    if (options.nodes > 1) {
      throw CLI::ValidationError(
          "--rdzv", fmt::format("{} hosts need an address of node 0 that the others reach, as in --rdzv 10.0.0.1:29500",
                                options.nodes));
    }
    return;
  }
  try {
    const parallel::InitMethod method = parallel::parse_init_method("tcp://" + flags.rdzv);
    options.host = method.host;
    options.port = method.port;
  } catch (const ConfigError&) {
    cli::refuse("--rdzv", "host:port, as in 10.0.0.1:29500 or [::1]:29500", flags.rdzv);
  }
}

void translate(Flags flags, parallel::LaunchOptions& options) {
  if (flags.standalone && flags.nodes > 1) {
    throw CLI::ValidationError("--standalone", fmt::format("is for one host, and --nnodes is {}", flags.nodes));
  }
  if (flags.node >= flags.nodes) {
    cli::refuse("--node-rank", fmt::format("a whole number below --nnodes, {}", flags.nodes),
                std::to_string(flags.node));
  }
  const auto time = [](double seconds) { return std::chrono::milliseconds(std::int64_t(seconds * 1000)); };
  options.ranks = number_of_ranks(flags.ranks);
  options.nodes = flags.nodes;
  options.node = flags.node;
  place_store(flags, options);
  options.max_restarts = flags.max_restarts;
  if (flags.elastic > options.ranks) {
    cli::refuse("--elastic", fmt::format("a whole number up to --nproc-per-node, {}", options.ranks),
                std::to_string(flags.elastic));
  }
  if (flags.elastic > 0 && flags.nodes > 1) {
    throw CLI::ValidationError(
        "--elastic",
        fmt::format("is for ranks on one host, and --nnodes is {}; --max-restarts works there", flags.nodes));
  }
  options.elastic = flags.elastic;
  options.kill_timeout = time(flags.kill_timeout);
  options.heartbeat_limit = time(flags.heartbeat_limit);
  options.log_folder = flags.log_dir;
  if (!flags.log_dir.empty()) {
    options.output = parallel::LaunchOptions::Output::files;
  }
}

}  // namespace

RunCommand read_run_command(int argc, const char* const* argv) {
  RunCommand command;
  Flags flags;
  take_defaults(flags);
  CLI::App app("Runs a program as the ranks of a job, and ends them all when one fails.", "tandem run");
  add_flags(app, flags);
  app.set_help_flag("--help,-h", "");  // makes the flags known to split_command(); parse() sets their description
  std::vector<std::string> arguments(argv, argv + argc);
  const std::size_t program = split_command(app, arguments);
  std::vector<const char*> own;
  own.reserve(program);
  for (std::size_t i = 0; i < program; ++i) {
    own.push_back(arguments[i].c_str());
  }
  command.exit_code = cli::parse(app, static_cast<int>(own.size()), own.data());
  if (command.exit_code) {
    return command;
  }
  try {
    translate(flags, command.options);
  } catch (const CLI::ParseError& error) {
    cli::narrate(fmt::format("error: {}", error.what()));
    command.exit_code = 2;
    return command;
  }
  command.options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  if (command.options.command.empty()) {
    cli::narrate("error: a program must follow, as in tandem run -n 2 ./mlp");
    command.exit_code = 2;
  }
  return command;
}

}  // namespace tool
