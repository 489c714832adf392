#include <tandem/parallel/job/spawn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/thread_state.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/process_group_guard.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/parallel/rendezvous/text.h>
#include <tandem/tensor/generator.h>

// Ranks as threads: one LocalWorld, one group for each rank, and one thread for each rank. The thread carries the
// caller's state with its own device, random numbers and rank. A rank whose function has ended leaves the world and
// says how, so that the other ranks stop waiting for it. When all threads have ended, spawn() rethrows the exception of
// the lowest rank that did not merely lose another one.

namespace tandem::inline v0::parallel::detail {

namespace {

struct RankThread {
  std::unique_ptr<ProcessGroup> group;
  RankContext context{};
  Generator generator;
  std::exception_ptr failure;
  bool lost_another = false;  // the rank failed because it lost another
  std::string how = "ended";
  std::thread thread;
};

// Call in a catch block: keeps the exception, with the rank in its text.
void note_failure(RankThread& rank, std::size_t index, std::size_t count) {
  rank.failure = std::current_exception();
  try {
    throw;
  } catch (Error& error) {
    rank.how = fmt::format("threw: {}", error.what());
    const auto* comm = dynamic_cast<const CommError*>(&error);
    rank.lost_another = comm != nullptr &&
                        (comm->details().fault == CommFault::peer_lost || comm->details().fault == CommFault::aborted);
    error.add_context(fmt::format("in rank {} of {}", index, count));
  } catch (const std::exception& error) {
    rank.how = fmt::format("threw: {}", error.what());
  } catch (...) {
    rank.how = "threw what is not a std::exception";
  }
}

// Drops failures of calls that were still pending: the rank's own failure counts.
void forget_failures(ProcessGroup& group) {
  try {
    group.wait_all();
  } catch (const CommError&) {
  }
}

std::vector<Device> devices_of(int ranks, const SpawnOptions& options) {
  std::vector<Device> devices = options.devices;
  for (int r = static_cast<int>(devices.size()); r < ranks; ++r) {
    devices.emplace_back(DeviceType::cpu, r);
  }
  for (const Device device : devices) {
    require_available(device);
  }
  return devices;
}

void rethrow_root_cause(std::vector<RankThread>& ranks) {
  const auto first = [&](bool lost_another) {
    return std::find_if(ranks.begin(), ranks.end(),
                        [&](const RankThread& rank) { return rank.failure && rank.lost_another == lost_another; });
  };
  auto cause = first(false);
  cause = cause == ranks.end() ? first(true) : cause;
  if (cause != ranks.end()) {
    std::rethrow_exception(cause->failure);
  }
}

// Throws ConfigError for a call of spawn() that makes no sense with threads or processes.
void check_spawn(int ranks, const SpawnOptions& options) {
  check<ConfigError>(ranks >= 1, "spawn: {} ranks; expected at least 1", ranks);
  if (const char* variable = launcher_variable()) {
    fail<ConfigError>(
        "spawn: a launcher has already made this process rank {} ({} is set), and {} ranks in each of its processes "
        "are not meant: either start this program without the launcher, or call the function without spawn()",
        std::getenv(variable), variable, ranks);
  }
  check<ConfigError>(!is_initialized(), "spawn: called within a rank; ranks have no ranks of their own");
  check<ConfigError>(options.devices.empty() || options.devices.size() == static_cast<std::size_t>(ranks),
                     "spawn: {} devices for {} ranks; expected one each, or none", options.devices.size(), ranks);
}

}  // namespace

void seed_as_rank(Generator& generator, std::uint64_t seed, std::uint64_t offset, int rank) {
  generator.manual_seed(seed + 0xd1b54a32d192ed03U * static_cast<std::uint64_t>(rank));
  generator.set_offset(offset);
}

void spawn_threads(int count, core::FunctionRef<void(ProcessGroup&)> body, const SpawnOptions& options) {
  check_spawn(count, options);
  const std::vector<Device> devices = devices_of(count, options);
  const auto world = std::make_shared<LocalWorld>(count);
  std::vector<std::unique_ptr<ProcessGroup>> groups = local_groups(world, options.group);
  std::vector<RankThread> ranks(static_cast<std::size_t>(count));
  Generator& drawn_from = current_generator();
  const std::uint64_t offset = drawn_from.offset();

  const auto run = [&](std::size_t index, core::ThreadState state) {
    RankThread& rank = ranks[index];
    state.device = devices[index];
    state.generator = &rank.generator;
    state.rank = &rank.context;
    const core::ThreadStateScope carried(state);
    try {
      body(*rank.group);
      rank.group->wait_all();
    } catch (...) {
      note_failure(rank, index, ranks.size());
    }
    world->leave(static_cast<int>(index), rank.how);
    if (rank.failure) {
      forget_failures(*rank.group);
    }
    rank.group.reset();
  };

  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].group = std::move(groups[r]);
    ranks[r].context.group = ranks[r].group.get();
    seed_as_rank(ranks[r].generator, drawn_from.seed(), offset, static_cast<int>(r));
  }
  std::string refused;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    try {
      ranks[r].thread = std::thread(run, r, core::thread_state());
    } catch (const std::system_error& error) {
      refused = error.what();
      world->leave(static_cast<int>(r), "did not start");
    }
  }
  std::uint64_t drawn = 0;
  for (RankThread& rank : ranks) {
    if (rank.thread.joinable()) {
      rank.thread.join();
      drawn = std::max(drawn, rank.generator.offset() - offset);
    }
  }
  check<ConfigError>(refused.empty(), "spawn: the system refuses {} threads ({})", count, refused);
  drawn_from.reserve(drawn);
  rethrow_root_cause(ranks);
}

// Ranks as processes. A C++ function cannot be handed to another process, so every rank executes this program again
// with the same arguments and finds the call by counting:
//
// 1. The parent launches /proc/self/exe. TANDEM_SPAWN_CALL names the call of spawn(). The variables that identify a
//    rank have the prefix TANDEM_SPAWN_, so that main() takes the same path as in the parent.
// 2. In the child, earlier calls return at once. The named call removes the prefix, joins the job with a
//    ProcessGroupGuard, runs the function, and ends the process.
// 3. An exception of the function becomes the job's verdict: the parent and the other ranks throw it as a CommError.

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

// Tells the parent and all ranks, as if the launcher had told them.
void announce(const WorldInfo& world, const std::string& what) {
  const std::string text =
      fmt::format("{} threw: {}", rank_name(world.rank, ::getpid(), own_host_name()), what).substr(0, 4096);
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
    const ProcessGroupGuard guard({.timeout = options.group.timeout});
    try {
      body(guard.group());
      guard.group().wait_all();
    } catch (const std::exception& error) {
      announce(world, error.what());  // the guard would announce it with fewer details
      throw;
    }
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "what is not a std::exception";
  }
  if (failure) {
    announce(world, *failure);
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
  launched.output = LaunchOptions::Output::inherited;
  launched.variables = {fmt::format("{}={}", kCall, call)};
  launched.identity_prefix = kHidden;
  const LaunchOutcome outcome = launch(launched);
  if (!outcome.cause.empty()) {
    throw CommError(fmt::format("spawn: {}", outcome.cause),
                    {.fault = CommFault::peer_lost, .rank = outcome.rank, .op = "spawn"});
  }
}

}  // namespace tandem::inline v0::parallel::detail
