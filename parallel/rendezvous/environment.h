#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// How the ranks of a job find each other.
struct TANDEM_API InitMethod {
  /// The scheme: "env://", "tcp://host:port" or "file://path".
  enum class Kind : std::uint8_t { environment, tcp, file };

  Kind kind = Kind::environment;  // the scheme
  std::string host;               // tcp: without the brackets of an IPv6 address
  std::uint16_t port = 0;         // tcp: 1 to 65535
  std::string path;               // file: a folder

  bool operator==(const InitMethod&) const = default;
};

/// Parses "env://", "tcp://node7:29500", "tcp://[::1]:29500" or "file:///shared/folder". Throws ConfigError with the
/// expected format.
TANDEM_API InitMethod parse_init_method(std::string_view text);

/// The largest number of ranks.
inline constexpr int kMaxWorldSize = 1 << 20;

/// This process's place in the job, and the location of the job's store.
struct TANDEM_API WorldInfo {
  /// The source of the information.
  enum class Source : std::uint8_t { arguments, torchrun, open_mpi, slurm, single_process };

  int rank = 0;                            // of this process
  int world_size = 1;                      // number of ranks in the job
  int local_rank = 0;                      // the rank's number on this host
  int local_world_size = 1;                // number of ranks on this host
  int node = 0;                            // index of this host
  std::string address = "127.0.0.1";       // of the store's server; unused with InitMethod::Kind::file
  std::uint16_t port = 0;                  // 0: any port, for a job with one process
  Source source = Source::single_process;  // the origin of these values
  bool store_is_hosted = false;            // by the launcher; otherwise rank 0 hosts the server
  std::string job = {};                    // the launcher's name for the job, if it has one: "Open MPI's job 7471"

  bool operator==(const WorldInfo&) const = default;
};

/// A program's own settings, which take precedence over the environment.
struct TANDEM_API WorldArguments {
  std::optional<int> rank = std::nullopt;        // needs world_size
  std::optional<int> world_size = std::nullopt;  // needs rank
};

/// Determines this process's rank from the first source that exists: `arguments`; RANK and the other variables of
/// torchrun and `tandem run`; Open MPI's variables; Slurm's variables in a task started by srun; otherwise this is the
/// only process. One source provides everything except the location of the store, which may come from `method` (tcp://)
/// or from MASTER_ADDR and MASTER_PORT.
///
/// Throws ConfigError for a missing variable, with the command that would set it, for a variable that is not a number,
/// and for numbers that contradict each other.
TANDEM_API WorldInfo read_world(const InitMethod& method = {}, const WorldArguments& arguments = {},
                                const EnvironmentLookup& environment = process_environment);

/// The variable by which a launcher marked this process as a rank: "RANK", also in a job of one rank,
/// "OMPI_COMM_WORLD_RANK", or "SLURM_PROCID" in a task of srun. Null if no launcher did.
TANDEM_API const char* launcher_variable(const EnvironmentLookup& environment = process_environment);

/// Text for the log at startup: "rank 3 of 8 from SLURM_PROCID (local rank 1 of 2 on node 1), store at node7:29500".
TANDEM_API std::string describe(const WorldInfo& world);

}  // namespace tandem::inline v0::parallel
