#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// What launch() starts, and how.
struct TANDEM_API LaunchOptions {
  /// What becomes of what the ranks write.
  enum class Output : std::uint8_t {
    prefixed,  // line by line with "[rank] " before each: stdout to our stdout, stderr to our stderr
    files,     // rank2.out and rank2.err in log_folder
    inherited  // they write to our own stdout and stderr themselves
  };

  /// The program, which is looked for in PATH unless it has a '/', and its arguments. No shell reads them.
  std::vector<std::string> command = {};
  /// Where `command` is only what the program is called, the file that is executed; empty: command[0].
  std::string file = {};
  /// Ranks on this host; the same number on each.
  int ranks = 1;
  /// Hosts, each with a launcher of its own.
  int nodes = 1;
  /// Which of them this is; 0 hosts the store.
  int node = 0;
  /// Where the store listens: an address of node 0.
  std::string host = "127.0.0.1";
  /// There; 0: a free one, with one node.
  std::uint16_t port = 0;
  /// The job's. None: one is made, with one node.
  std::optional<JobToken> token = std::nullopt;
  /// How often all ranks are started again after a failure.
  int max_restarts = 0;
  /// From SIGTERM to SIGKILL.
  std::chrono::milliseconds kill_timeout{30'000};
  /// A rank that has connected to the store and is not heard for so long is lost.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// How long the launchers wait for each other.
  std::chrono::milliseconds node_timeout{300'000};
  /// See Output.
  Output output = Output::prefixed;
  /// Made where it is not there.
  std::string log_folder = {};
  /// "NAME=value", for the ranks.
  std::vector<std::string> variables = {};
  /// Before the names of the variables that say who a rank is; for a program that uncovers them itself.
  std::string identity_prefix = {};
  /// Whether SIGINT, SIGTERM, SIGHUP and SIGTSTP of this process go to the ranks, for as long as they run.
  bool take_signals = false;
  /// Whether progress and the reason of a failure are written to stderr.
  bool narrate = false;
};

/// How a job ended.
struct TANDEM_API LaunchOutcome {
  /// Of the first rank that failed, 128 + N where signal N ended it; 0 if none did; 1 where no rank of this host failed
  /// by itself.
  int exit_code = 0;
  /// What every rank was told: "rank 2 (pid 4711 on node7) was killed by signal 9 (SIGKILL)". Empty: no failure.
  std::string cause = {};
  /// The rank in it, in the job; -1: none.
  int rank = -1;
  /// The one that ended the job from outside; 0: none did.
  int signal = 0;
};

/// The program that `name` means, as execvp() finds it. Throws ConfigError where there is none, and says why.
TANDEM_API std::string find_program(const std::string& name);

/// Runs a program as the ranks of a job, with the store that they meet in, and returns when all have ended: what
/// `tandem run` does (docs/launcher.md). Each rank is told who it is by torchrun's variables and TANDEM_JOB_TOKEN. The
/// first one that fails, by an exit code other than 0, by a signal or by its silence, ends the job: all are told which
/// it was, get SIGTERM a second later and SIGKILL after kill_timeout. Ranks die with this process, and with the
/// thread that calls this.
///
/// Throws ConfigError for options that are wrong and a program that is not there, IoError and StoreError where the
/// store or another node cannot be had, before any rank is started.
TANDEM_API LaunchOutcome launch(const LaunchOptions& options);

}  // namespace tandem::inline v0::parallel
