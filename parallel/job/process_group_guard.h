#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// A communication backend, by which ranks exchange data.
struct TANDEM_API BackendInfo {
  std::string name;     // "gloo"
  bool usable = false;  // by this build on this machine
  std::string why;      // the backend's purpose; for an unusable backend, the reason and the remedy
};

/// All backends that process groups know, usable or not.
TANDEM_API std::vector<BackendInfo> backends();

/// How a process joins its job. The names are those of torch.distributed.init_process_group.
struct TANDEM_API InitOptions {
  /// The backend that carries the data, "gloo" or "nccl"; empty selects the best one for this build, machine and
  /// current device.
  std::string backend = "";
  /// Where the ranks meet: "env://" (the launcher's variables), "tcp://host:port" or "file://folder".
  std::string init_method = "env://";
  /// The deadline of each collective, see ProcessGroupOptions.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::optional<int> rank = std::nullopt;        // needs world_size; empty: the launcher's
  std::optional<int> world_size = std::nullopt;  // needs rank
  std::optional<JobToken> token = std::nullopt;  // the job's; empty: TANDEM_JOB_TOKEN or _FILE
  /// The time for all ranks to arrive and to connect with each other.
  std::chrono::milliseconds init_timeout = std::chrono::minutes(5);
  std::chrono::milliseconds heartbeat_interval = std::chrono::seconds(1);  // the time between two signs of life
  std::chrono::milliseconds heartbeat_limit = std::chrono::seconds(10);    // a rank silent for longer is lost
  /// Gets a line that says who is waited for, after 2 s of waiting and then every 10 s, on the joining thread of the
  /// lowest rank that is there. Empty: the line goes to stderr.
  std::function<void(const std::string& line)> on_waiting = {};
};

/// Makes this process a rank of its job until the end of the scope:
///
///     int main() {
///       parallel::ProcessGroupGuard guard;  // rank and size from tandem run, torchrun, mpirun or srun
///       parallel::default_group().all_reduce(x);
///     }
///
/// The guard determines the rank (read_world), meets and connects the ranks, and makes the default group for all
/// threads of the process: default_group(), get_rank(), get_world_size(). A program without a launcher is rank 0 of 1.
/// From then on each rank draws its own random numbers, as in spawn(); those of rank 0 do not change.
///
/// If a rank ends in any way other than the end of its guard, all other ranks learn of it within a second, whatever
/// they do, and their group fails with a CommError. The error names the lost rank with its process id and, under
/// `tandem run`, the signal that killed it or its exit code. A rank that computes for a long time is not lost.
class TANDEM_API ProcessGroupGuard {
 public:
  /// Returns when all ranks are connected. Throws ConfigError for wrong options, a wrong environment, or a second
  /// guard. Throws CommError (init) with the ranks that did not arrive in time, or (peer_lost) with a rank that died
  /// meanwhile.
  explicit ProcessGroupGuard(const InitOptions& options = {});
  /// Finishes pending operations and leaves the job. During stack unwinding the other ranks learn that this rank is
  /// lost.
  ~ProcessGroupGuard();
  ProcessGroupGuard(const ProcessGroupGuard&) = delete;
  ProcessGroupGuard& operator=(const ProcessGroupGuard&) = delete;

  /// The group of all ranks.
  ProcessGroup& group() const noexcept;
  /// The rank, the world size, and local_rank, which selects the device.
  const WorldInfo& world() const noexcept;

 private:
  struct Job;
  std::unique_ptr<Job> job_;
};

/// Joins the job until destroy_process_group(), for programs that join in one function and leave in another. Throws the
/// errors of ProcessGroupGuard.
TANDEM_API void init_process_group(const InitOptions& options = {});
/// Leaves the job. Throws ConfigError if init_process_group() was not called.
TANDEM_API void destroy_process_group();

}  // namespace tandem::inline v0::parallel
