#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/init_method.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// The largest number of ranks.
inline constexpr int kMaxWorldSize = 1 << 20;

/// Which process of the job this is, and where the job's store is.
struct TANDEM_API WorldInfo {
  /// Who said so.
  enum class Source : std::uint8_t { arguments, torchrun, open_mpi, slurm, single_process };

  int rank = 0;                            // of this process
  int world_size = 1;                      // how many there are
  int local_rank = 0;                      // on this host
  int local_world_size = 1;                // on this host
  int node = 0;                            // of the host
  std::string address = "127.0.0.1";       // of the store's server; with InitMethod::Kind::file there is none
  std::uint16_t port = 0;                  // 0: any, of a job with one process
  Source source = Source::single_process;  // of all this
  bool store_is_hosted = false;            // by the launcher; else rank 0 has the server

  bool operator==(const WorldInfo&) const = default;
};

/// What a program may say of itself, beside its environment.
struct TANDEM_API WorldArguments {
  std::optional<int> rank = std::nullopt;        // with world_size, or neither
  std::optional<int> world_size = std::nullopt;  // with rank, or neither
};

/// Finds out who we are: from `arguments`; else from RANK and what else torchrun and `tandem run` set; else from Open
/// MPI's variables; else from Slurm's, in a task that srun started; else this is the only process. One of them says
/// everything but where the store is: that may come from `method` (tcp://), or from MASTER_ADDR and MASTER_PORT.
///
/// Throws ConfigError for a variable that is missing, with the command that would set it, for one that is no number,
/// and for numbers that do not fit together.
TANDEM_API WorldInfo read_world(const InitMethod& method = {}, const WorldArguments& arguments = {},
                                const EnvironmentLookup& environment = process_environment);

/// The variable in which a launcher has said that this process is one rank of several ("RANK", also where it is of one;
/// "OMPI_COMM_WORLD_RANK"; "SLURM_PROCID" in a task of srun); null: none has.
TANDEM_API const char* launcher_variable(const EnvironmentLookup& environment = process_environment);

/// "rank 3 of 8 from SLURM_PROCID (local rank 1 of 2 on node 1), store at node7:29500": to be said once, at the start.
TANDEM_API std::string describe(const WorldInfo& world);

}  // namespace tandem::inline v0::parallel
