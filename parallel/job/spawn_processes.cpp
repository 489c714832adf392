#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/host_name.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/carried_error.h>
#include <tandem/parallel/job/elastic.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/process_group_guard.h>
#include <tandem/parallel/job/rank_end.h>
#include <tandem/parallel/job/spawn.h>
#include <tandem/parallel/job/spawn_check.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/parallel/rendezvous/text.h>

// Ranks as processes. A C++ function cannot be handed to another process, so every rank executes this program again
// with the same arguments and finds the call by counting:
//
// 1. The parent launches /proc/self/exe. TANDEM_SPAWN_CALL names the call of spawn(). The variables that identify a
//    rank have the prefix TANDEM_SPAWN_, so that main() takes the same path as in the parent.
// 2. In the child, earlier calls return at once. The named call removes the prefix, joins the job with a
//    ProcessGroupGuard, runs the function, and ends the process.
// 3. An exception of the function becomes the job's verdict. The other ranks throw it as a CommError, the parent as
//    what it was, where its type is known.

namespace tandem::inline v0::parallel::detail {

namespace {

// Names the call that a child is for: "<number> <file>:<line>". Until the child reaches that call it is not a rank, and
// its identity is hidden in variables with the prefix kHidden.
constexpr const char* kCall = "TANDEM_SPAWN_CALL";
constexpr const char* kHidden = "TANDEM_SPAWN_";

std::atomic<int> calls = 0;
std::atomic<bool> has_arrived = false;

// A child whose main() ends before the call has done nothing, and must not count as success. The library may not have
// been called at all by then, so only a function registered before main() can notice.
void complain_at_exit() {
  if (!has_arrived) {
    std::fprintf(stderr,
                 "error: spawn: a rank's process came to the end of main() without the call that it was made for (%s): "
                 "main() must take the same way in each\n",
                 std::getenv(kCall));
    std::fflush(nullptr);
    std::_Exit(1);
  }
}
[[maybe_unused]] const int registered = std::getenv(kCall) == nullptr ? 0 : std::atexit(complain_at_exit);

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    arguments.push_back(argument);
  }
  check<IoError>(!arguments.empty(), "spawn: cannot read /proc/self/cmdline, from which processes learn how to start");
  return arguments;
}

void become_rank() {
  std::vector<std::string> hidden;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).starts_with(kHidden)) {
      hidden.emplace_back(*entry);
    }
  }
  for (const std::string& variable : hidden) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (name != kCall) {
      ::setenv(name.substr(std::string(kHidden).size()).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    ::unsetenv(name.c_str());
  }
}

constexpr std::string_view kThrew = " threw ";

// "ShapeError: text"; only the text if the parent cannot throw that type.
std::string in_words(const std::exception& error) {
  const std::string_view type = carried_type(error);
  return type.empty() ? fmt::format("an exception: {}", error.what()) : fmt::format("{}: {}", type, error.what());
}

// Throws what a rank announced; returns if the rank failed in another way.
void throw_announced(const LaunchOutcome& outcome, int count) {
  const std::size_t type = outcome.cause.find(kThrew) + kThrew.size();
  const std::size_t text = outcome.cause.find(": ", type);
  if (rank_in(outcome.cause) >= 0 && type >= kThrew.size() && text != std::string::npos) {
    throw_again(std::string_view(outcome.cause).substr(type, text - type),
                fmt::format("{}\n  in rank {} of {}", outcome.cause.substr(text + 2), outcome.rank, count));
  }
}

// Tells the parent and all ranks, as if the launcher had told them.
void announce(const WorldInfo& world, const std::string& what) {
  const std::string text =
      fmt::format("{}{}{}", rank_name(world.rank, ::getpid(), core::host_name()), kThrew, what).substr(0, 4096);
  try {
    TcpStore store({.host = world.address, .port = world.port, .token = JobToken::from_environment()});
    store.announce_verdict(text);
  } catch (const std::exception&) {
    core::warn(text);
  }
}

[[noreturn]] void run_as_rank(int count, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options) {
  become_rank();
  const WorldInfo world = read_world();
  check<ConfigError>(world.world_size == count, "spawn: {} ranks here, and {} in the process that started this one",
                     count, world.world_size);
  const auto rank = static_cast<std::size_t>(world.rank);
  std::optional<std::string> failure;
  try {
    core::ThreadState state = core::thread_state();
    if (!options.devices.empty()) {
      state.device = options.devices[rank];
      require_available(state.device);
    }
    const core::ThreadStateScope carried(state);
    if (options.elastic > 0) {
      run_elastic(body, {.timeout = options.group.timeout});
      std::exit(0);
    }
    const ProcessGroupGuard guard({.timeout = options.group.timeout});
    try {
      body(guard.group());
      guard.group().wait_all();
    } catch (const std::exception& error) {
      announce(world, in_words(error));  // the guard would announce it with fewer details
      throw;
    }
  } catch (const std::exception& error) {
    failure = in_words(error);
  } catch (...) {
    failure = "what is not a std::exception";
  }
  if (failure) {
    if (options.elastic > 0) {  // the others may go on
      std::fprintf(stderr, "error: %s\n", failure->c_str());
    } else {
      announce(world, *failure);
    }
    std::fflush(nullptr);
    std::_Exit(1);
  }
  std::exit(0);
}

}  // namespace

void spawn_processes(int count, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options,
                     const std::source_location& where) {
  check<ConfigError>(!(has_arrived && std::getenv("RANK") != nullptr),
                     "spawn: called within a rank; ranks have no ranks of their own");
  check_spawn(count, options);
  const int mine = ++calls;
  const std::string call = fmt::format("{} {}:{}", mine, where.file_name(), where.line());
  if (const char* wanted = std::getenv(kCall)) {
    if (mine < std::atoi(wanted)) {
      return;  // other children executed this call for the parent
    }
    has_arrived = true;
    check<ConfigError>(
        call == wanted,
        "spawn: this rank's process came to call {} instead of {}: main() must take the same way in each", call,
        wanted);
    run_as_rank(count, body, options);
  }
  LaunchOptions launched;
  launched.command = own_arguments();
  launched.file = "/proc/self/exe";
  launched.ranks = count;
  launched.elastic = options.elastic;
  launched.output = LaunchOptions::Output::plain;
  launched.variables = {fmt::format("{}={}", kCall, call)};
  launched.identity_prefix = kHidden;
  std::fflush(nullptr);  // what was printed before the call comes first
  const LaunchOutcome outcome = launch(launched);
  for (const std::string& cause : outcome.lost) {
    core::warn(fmt::format("spawn: the others went on: {}", cause));
  }
  throw_announced(outcome, count);
  if (!outcome.cause.empty()) {
    throw CommError(fmt::format("spawn: {}", outcome.cause),
                    {.fault = CommFault::peer_lost, .rank = outcome.rank, .op = "spawn"});
  }
}

}  // namespace tandem::inline v0::parallel::detail
