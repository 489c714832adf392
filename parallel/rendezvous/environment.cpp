#include <tandem/parallel/rendezvous/environment.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/error.h>
#include <tandem/core/hash.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

namespace {

using Source = WorldInfo::Source;

constexpr std::uint16_t kDefaultPort = 29500;

InitMethod parse_tcp(std::string_view text, std::string_view address) {
  const std::string shown = shown_key(text);
  const std::size_t colon = std::min(address.rfind(':'), address.size());
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(std::min(colon + 1, address.size()));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  check<ConfigError>(bracketed || host.find(':') == std::string_view::npos,
                     "init method '{}': an IPv6 address needs brackets, as in tcp://[::1]:29500", shown);
  // An IPv6 address may name a network interface, such as fe80::1%eth0.
  check<ConfigError>(is_host_name(host, bracketed ? ":%" : ""),
                     "init method '{}': expected a host as in tcp://node7:29500, got '{}'", shown, shown_key(host));
  const std::optional<std::int64_t> number = parse_number(port, 1, 65535);
  check<ConfigError>(number.has_value(),
                     "init method '{}': expected a port of 1 to 65535 as in tcp://node7:29500, got '{}'", shown,
                     shown_key(port));
  return {InitMethod::Kind::tcp, std::string(host), static_cast<std::uint16_t>(*number), {}};
}

// The variables of one launcher.
class Variables {
 public:
  /// `known_by` is the variable by which we know that this launcher started us.
  Variables(const EnvironmentLookup& environment, const char* known_by)
      : environment_(environment), known_by_(known_by) {}

  bool has(const char* name) const { return environment_(name).has_value(); }

  /// `command` is a command that would set the variable, for the error message.
  std::string text(const char* name, const char* command) const {
    std::optional<std::string> value = environment_(name);
    check<ConfigError>(value.has_value() && !value->empty(), "{} is set, and {} is {} [TDM-E606]{}{}", known_by_, name,
                       value ? "empty" : "missing", *command == '\0' ? "" : ": ", command);
    return std::move(*value);
  }

  template <class Number = std::int64_t>
  Number number(const char* name, const char* command, std::int64_t least, std::int64_t most) const {
    const std::string value = text(name, command);
    const std::optional<std::int64_t> number = parse_number(value, least, most);
    check<ConfigError>(number.has_value(), "{}='{}': expected a number of {} to {}", name, shown_key(value), least,
                       most);
    return static_cast<Number>(*number);
  }

 private:
  const EnvironmentLookup& environment_;
  const char* known_by_;
};

std::string host_in(const Variables& variables, const char* command) {
  std::string host = variables.text("MASTER_ADDR", command);
  const bool is_host = host.size() <= 253 && std::none_of(host.begin(), host.end(), [](char c) {
                         return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == '[' || c == ']' || c == 0x7f;
                       });
  check<ConfigError>(is_host, "MASTER_ADDR='{}': expected a host name or an address, without brackets and port",
                     shown_key(host));
  return host;
}

// torchrun's agent hosts its own store at MASTER_PORT, which speaks PyTorch's protocol.
std::uint16_t port_in(const Variables& variables) {
  const bool taken = variables.has("TORCHELASTIC_USE_AGENT_STORE") &&
                     variables.text("TORCHELASTIC_USE_AGENT_STORE", "unset TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (taken && variables.has("TANDEM_STORE_PORT")) {
    return variables.number<std::uint16_t>("TANDEM_STORE_PORT", "unset TANDEM_STORE_PORT", 1, 65535);
  }
  const std::int64_t port = variables.number("MASTER_PORT", "export MASTER_PORT=29500", 1, 65535);
  check<ConfigError>(
      !taken || port < 65535,
      "MASTER_PORT='65535' is torchrun's own, and there is none above it: export TANDEM_STORE_PORT=29500");
  return static_cast<std::uint16_t>(port + (taken ? 1 : 0));
}

// Takes the place of the store from the variables that torchrun and `tandem run` set.
void read_master(WorldInfo& world, const Variables& variables, const char* command) {
  world.address = host_in(variables, command);
  world.port = port_in(variables);
  world.store_is_hosted = variables.has("TANDEM_STORE_HOSTED") &&
                          variables.number("TANDEM_STORE_HOSTED", "unset TANDEM_STORE_HOSTED", 0, 1) == 1;
}

// Places the store if the launcher does not: on a single host every rank can find it.
void place_store(WorldInfo& world, const Variables& variables, std::uint16_t port, const char* command) {
  const bool one_host = world.local_world_size == world.world_size;
  world.address = one_host && !variables.has("MASTER_ADDR") ? "127.0.0.1" : host_in(variables, command);
  world.port = variables.has("MASTER_PORT") ? port_in(variables) : port;
}

WorldInfo read_torchrun(const EnvironmentLookup& environment, bool find_store) {
  const Variables variables(environment, "RANK");
  WorldInfo world{.source = Source::torchrun};
  world.world_size = variables.number<int>("WORLD_SIZE", "export WORLD_SIZE=<number of ranks>", 1, kMaxWorldSize);
  world.rank = variables.number<int>("RANK", "export RANK=<this rank>", 0, world.world_size - 1);
  if (variables.has("LOCAL_RANK") || variables.has("LOCAL_WORLD_SIZE")) {
    world.local_world_size = variables.number<int>(
        "LOCAL_WORLD_SIZE", "export LOCAL_WORLD_SIZE=<number of ranks on this host>", 1, world.world_size);
    world.local_rank = variables.number<int>("LOCAL_RANK", "export LOCAL_RANK=<this rank's number on its host>", 0,
                                             world.local_world_size - 1);
  }
  if (variables.has("GROUP_RANK")) {
    world.node = variables.number<int>("GROUP_RANK", "unset GROUP_RANK", 0, kMaxWorldSize);
  }
  if (find_store) {
    read_master(world, variables, "export MASTER_ADDR=<address of rank 0's host>, 127.0.0.1 on one host");
  }
  return world;
}

// Jobs on one host need different ports, below the system's ephemeral range.
constexpr std::uint64_t kFirstPort = 20'000;
constexpr std::uint64_t kPorts = 10'000;

WorldInfo read_open_mpi(const EnvironmentLookup& environment, bool find_store) {
  constexpr const char* kStart = "start it with mpirun -n 2 PROGRAM";
  const Variables variables(environment, "OMPI_COMM_WORLD_RANK");
  WorldInfo world{.source = Source::open_mpi};
  world.world_size = variables.number<int>("OMPI_COMM_WORLD_SIZE", kStart, 1, kMaxWorldSize);
  world.rank = variables.number<int>("OMPI_COMM_WORLD_RANK", kStart, 0, world.world_size - 1);
  world.local_world_size = variables.number<int>("OMPI_COMM_WORLD_LOCAL_SIZE", kStart, 1, world.world_size);
  world.local_rank = variables.number<int>("OMPI_COMM_WORLD_LOCAL_RANK", kStart, 0, world.local_world_size - 1);
  std::uint16_t port = kDefaultPort;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (variables.has(name) && world.job.empty()) {
      const std::string job = variables.text(name, kStart);
      world.job = fmt::format("Open MPI's job {}", shown_key(job));
      port = static_cast<std::uint16_t>(kFirstPort + core::fnv1a(job) % kPorts);
    }
  }
  if (find_store) {
    place_store(world, variables, port, "mpirun -x MASTER_ADDR=<address of rank 0's host> ...");
  }
  return world;
}

WorldInfo read_slurm(const EnvironmentLookup& environment, bool find_store) {
  constexpr const char* kStart = "start it with srun -n 2 PROGRAM";
  const Variables variables(environment, "SLURM_PROCID");
  WorldInfo world{.source = Source::slurm};
  world.world_size = variables.number<int>("SLURM_NTASKS", kStart, 1, kMaxWorldSize);
  world.rank = variables.number<int>("SLURM_PROCID", kStart, 0, world.world_size - 1);
  const int nodes = variables.number<int>("SLURM_NNODES", kStart, 1, kMaxWorldSize);
  world.node = variables.number<int>("SLURM_NODEID", kStart, 0, nodes - 1);
  const std::string tasks = variables.text("SLURM_TASKS_PER_NODE", kStart);
  const std::optional<int> here = slurm_tasks_on(tasks, world.node);
  check<ConfigError>(here && *here <= world.world_size,
                     "SLURM_TASKS_PER_NODE='{}': expected the tasks of each node, as in '2(x3),1', with node {} among "
                     "them and at most {} tasks there",
                     shown_key(tasks), world.node, world.world_size);
  world.local_world_size = *here;
  world.local_rank = variables.number<int>("SLURM_LOCALID", kStart, 0, world.local_world_size - 1);
  if (!find_store) {
    return world;
  }
  const std::int64_t job = variables.number("SLURM_JOB_ID", kStart, 0, INT64_C(1) << 40);
  const std::int64_t step = variables.number("SLURM_STEP_ID", kStart, 0, INT64_C(1) << 40);
  world.job = fmt::format("Slurm's job {}, step {}", job, step);
  const auto port = static_cast<std::uint16_t>(kFirstPort + static_cast<std::uint64_t>(job + 101 * step) % kPorts);
  if (variables.has("MASTER_ADDR") || world.local_world_size == world.world_size) {
    place_store(world, variables, port, "");
    return world;
  }
  const std::string list = variables.text("SLURM_STEP_NODELIST", kStart);
  const std::optional<std::string> first = slurm_first_host(list);
  check<ConfigError>(first.has_value(),
                     "SLURM_STEP_NODELIST='{}': expected names of hosts as in 'node[01-04,7]': export "
                     "MASTER_ADDR=<address of rank 0's host>",
                     shown_key(list));
  world.address = *first;
  world.port = variables.has("MASTER_PORT") ? port_in(variables) : port;
  return world;
}

WorldInfo read_arguments(const WorldArguments& arguments, const EnvironmentLookup& environment, bool find_store) {
  check<ConfigError>(arguments.rank && arguments.world_size, "{} is given and {} is not: give both, or neither",
                     arguments.rank ? "rank" : "world_size", arguments.rank ? "world_size" : "rank");
  WorldInfo world{.rank = *arguments.rank, .world_size = *arguments.world_size, .source = Source::arguments};
  check<ConfigError>(
      world.world_size >= 1 && world.world_size <= kMaxWorldSize && world.rank >= 0 && world.rank < world.world_size,
      "rank {} of {}: expected a world_size of 1 to {} and a rank below it", world.rank, world.world_size,
      kMaxWorldSize);
  const Variables variables(environment, "rank");
  if (find_store && (world.world_size > 1 || variables.has("MASTER_ADDR"))) {
    read_master(world, variables, "export MASTER_ADDR=<address of rank 0's host>, or name a tcp://host:port");
  }
  return world;
}

// The shell of an salloc also has Slurm's variables, but is not a task.
bool is_slurm_task(const EnvironmentLookup& environment) {
  return environment("SLURM_PROCID").has_value() && environment("SLURM_STEP_ID").has_value();
}

WorldInfo read_source(const WorldArguments& arguments, const EnvironmentLookup& environment, bool find_store) {
  if (arguments.rank || arguments.world_size) {
    return read_arguments(arguments, environment, find_store);
  }
  if (environment("RANK")) {
    return read_torchrun(environment, find_store);
  }
  if (environment("OMPI_COMM_WORLD_RANK")) {
    return read_open_mpi(environment, find_store);
  }
  if (is_slurm_task(environment)) {
    return read_slurm(environment, find_store);
  }
  check<ConfigError>(!environment("WORLD_SIZE"),
                     "WORLD_SIZE is set, and RANK is missing [TDM-E606]: export RANK=<this rank>");
  return {};
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

InitMethod parse_init_method(std::string_view text) {
  const std::size_t end = std::min(text.find("://"), text.size());
  const std::string_view scheme = text.substr(0, end);
  if (end < text.size()) {
    const std::string_view rest = text.substr(end + 3);
    if (scheme == "env") {
      check<ConfigError>(rest.empty(), "init method '{}': nothing comes after env://; the variables say the rest",
                         shown_key(text));
      return {};
    }
    if (scheme == "tcp") {
      return parse_tcp(text, rest);
    }
    if (scheme == "file") {
      check<ConfigError>(!rest.empty() && rest.find('\0') == std::string_view::npos,
                         "init method '{}': expected a folder, as in file:///shared/folder", shown_key(text));
      return {InitMethod::Kind::file, {}, 0, std::string(rest)};
    }
  }
  static const std::array<std::string, 3> kSchemes{"env", "tcp", "file"};
  const std::string close = scheme.size() <= 16 ? core::nearest(scheme, kSchemes) : "";
  fail<ConfigError>("init method '{}': expected env://, tcp://host:port or file://folder{}", shown_key(text),
                    close.empty() ? "" : "; did you mean " + close + "://?");
}

WorldInfo read_world(const InitMethod& method, const WorldArguments& arguments, const EnvironmentLookup& environment) {
  WorldInfo world = read_source(arguments, environment, method.kind == InitMethod::Kind::environment);
  if (method.kind != InitMethod::Kind::environment) {
    world.address = method.host;
    world.port = method.port;
  }
  return world;
}

const char* launcher_variable(const EnvironmentLookup& environment) {
  const auto is_one = [&](const char* size) { return environment(size) == "1"; };
  if (environment("RANK")) {
    return "RANK";
  }
  if (environment("OMPI_COMM_WORLD_RANK") && !is_one("OMPI_COMM_WORLD_SIZE")) {
    return "OMPI_COMM_WORLD_RANK";
  }
  return is_slurm_task(environment) && !is_one("SLURM_NTASKS") ? "SLURM_PROCID" : nullptr;
}

std::string describe(const WorldInfo& world) {
  const auto from = [&] {
    switch (world.source) {
      case Source::arguments: return "the arguments";
      case Source::torchrun: return "RANK";
      case Source::open_mpi: return "OMPI_COMM_WORLD_RANK";
      case Source::slurm: return "SLURM_PROCID";
      case Source::single_process: break;
    }
    return "no launcher";
  };
  std::string text = fmt::format("rank {} of {} from {}", world.rank, world.world_size, from());
  if (world.source != Source::single_process && world.source != Source::arguments) {
    text += fmt::format(" (local rank {} of {} on node {})", world.local_rank, world.local_world_size, world.node);
  }
  if (world.port != 0) {
    text += ", store at " + at_port(world.address, world.port);
  }
  return text;
}

}  // namespace tandem::inline v0::parallel
