#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// How a process joins its job. Names are those of torch.distributed.init_process_group.
struct TANDEM_API InitOptions {
  /// Carries the data: "gloo" or "nccl"; empty: the best that this build and machine have for the current device.
  std::string backend = "";
  /// Where the ranks meet: "env://" (what the launcher says), "tcp://host:port", "file://folder".
  std::string init_method = "env://";
  /// Of collectives, see ProcessGroupOptions.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::optional<int> rank = std::nullopt;        // with world_size; else the launcher says it
  std::optional<int> world_size = std::nullopt;  // with rank
  std::optional<JobToken> token = std::nullopt;  // the job's; else TANDEM_JOB_TOKEN or _FILE
  /// Until all ranks are there and connected with each other.
  std::chrono::milliseconds init_timeout = std::chrono::minutes(5);
  std::chrono::milliseconds heartbeat_interval = std::chrono::seconds(1);  // how often a rank says that it is alive
  std::chrono::milliseconds heartbeat_limit = std::chrono::seconds(10);    // after which a silent rank is lost
};

/// This process as a rank of its job, from here to the end of the scope:
///
///     int main() {
///       parallel::ProcessGroupGuard guard;  // who we are: from tandem run, torchrun, mpirun or srun
///       parallel::default_group().all_reduce(x);
///     }
///
/// It finds out who we are (read_world), meets the other ranks, connects with them, and makes the default group, for
/// all threads of the process: default_group(), get_rank(), get_world_size(). A program that nobody launched is rank 0
/// of 1. Random numbers are a rank's own from then on, as in spawn(): rank 0's are what they were.
///
/// When a rank ends in any other way than by the end of its guard, all others hear of it within a second, whatever they
/// do, and their group dies with a CommError that names it: with its process, and under `tandem run` with the signal
/// that killed it or its exit code. A rank that only computes for long is not lost.
class TANDEM_API ProcessGroupGuard {
 public:
  /// Returns when all ranks are connected. Throws ConfigError for what is wrong with the options, the environment or a
  /// guard that is there already; CommError (init) that names the ranks who did not come in time, or (peer_lost) who
  /// died meanwhile.
  explicit ProcessGroupGuard(const InitOptions& options = {});
  /// Finishes what is on its way, and leaves the job. While an exception unwinds this rank, the others learn that it is
  /// lost.
  ~ProcessGroupGuard();
  ProcessGroupGuard(const ProcessGroupGuard&) = delete;
  ProcessGroupGuard& operator=(const ProcessGroupGuard&) = delete;

  /// Of all ranks.
  ProcessGroup& group() const noexcept;
  /// Who we are: also local_rank, which chooses the device.
  const WorldInfo& world() const noexcept;

 private:
  struct Job;
  std::unique_ptr<Job> job_;
};

/// The same without a scope: until destroy_process_group(). For programs that join in one function and leave in
/// another. Throws as ProcessGroupGuard does.
TANDEM_API void init_process_group(const InitOptions& options = {});
/// Ends it. Throws ConfigError if there is none.
TANDEM_API void destroy_process_group();

}  // namespace tandem::inline v0::parallel
