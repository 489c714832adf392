#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

/// The program that launch() runs, the shape of the job and its limits.
struct TANDEM_API LaunchOptions {
  /// The destination of the ranks' output.
  enum class Output : std::uint8_t {
    prefixed,  // line by line, each with the prefix "[rank] "; stdout to our stdout, stderr to our stderr
    files,     // rank2.out and rank2.err in log_folder
    plain      // line by line, as it is
  };

  /// The program and its arguments. The program is looked up in PATH unless its name contains a '/'. No shell is
  /// involved.
  std::vector<std::string> command = {};
  /// The file to execute, if it differs from command[0], which is then only the program's name; empty: command[0].
  std::string file = {};
  /// Ranks on this host; every host needs the same number.
  int ranks = 1;
  /// Hosts, each with its own launcher.
  int nodes = 1;
  /// This host's index; node 0 hosts the store.
  int node = 0;
  /// The address of node 0 at which the store listens.
  std::string host = "127.0.0.1";
  /// The store's port on node 0; 0 selects a free port and needs nodes == 1.
  std::uint16_t port = 0;
  /// The job's token. std::nullopt generates one and needs nodes == 1.
  std::optional<JobToken> token = std::nullopt;
  /// How many times all ranks may be started again after a failure.
  int max_restarts = 0;
  /// The job goes on without ranks that it loses, as long as so many are left (or have ended well), if the program
  /// calls run_elastic(); 0: one lost rank ends the job. A lost rank is started again, max_restarts times in all, and
  /// joins the others at the end of an epoch. Needs nodes == 1.
  int elastic = 0;
  /// The time between SIGTERM and SIGKILL.
  std::chrono::milliseconds kill_timeout{30'000};
  /// A rank that has connected to the store and then stays silent for this long counts as lost.
  std::chrono::milliseconds heartbeat_limit{10'000};
  /// How long the launchers wait for each other.
  std::chrono::milliseconds node_timeout{300'000};
  /// The destination of the ranks' output, see Output.
  Output output = Output::prefixed;
  /// The folder for Output::files; created if missing.
  std::string log_folder = {};
  /// Additional environment variables of the ranks, each "NAME=value".
  std::vector<std::string> variables = {};
  /// Prefix of the variables that identify a rank, for a program that removes the prefix itself.
  std::string identity_prefix = {};
  /// Whether SIGINT, SIGTERM, SIGHUP and SIGTSTP of this process are passed on to the ranks while they run.
  bool take_signals = false;
  /// Whether progress and the reason for a failure are written to stderr.
  bool narrate = false;
};

/// How a job ended.
struct TANDEM_API LaunchOutcome {
  /// The exit code of the first rank of this host that failed by itself, or 128 + N if signal N ended that rank. 1 if
  /// the job failed but no rank of this host failed by itself; 0 after success. If a signal from outside stopped ranks
  /// that did not fail by themselves: 0, or 128 + 9 if one had to be killed. If the signal came while no ranks ran: 128
  /// + signal.
  int exit_code = 0;
  /// The verdict that every rank received: "rank 2 (pid 4711 on node7) was killed by signal 9 (SIGKILL)". Empty:
  /// success.
  std::string cause = {};
  /// The rank that the cause blames, numbered within the job; -1: none.
  int rank = -1;
  /// The signal from outside that ended the job; 0: none.
  int signal = 0;
  /// The losses after which an elastic job went on, in words.
  std::vector<std::string> lost = {};
};

/// Finds the program `name` as execvp() does. Throws ConfigError with the reason if there is no such program.
TANDEM_API std::string find_program(const std::string& name);

/// Runs a program as the ranks of a job and returns when all ranks have ended; `tandem run` calls this function
/// (docs/launcher.md). The launcher hosts the store in which the ranks meet. Each rank learns its identity from
/// torchrun's variables and TANDEM_JOB_TOKEN. The first rank that fails ends the job, whether by a nonzero exit code,
/// by a signal or by its silence: all ranks receive its name, then SIGTERM a second later, and SIGKILL after
/// kill_timeout. The ranks die with this process, and with the thread that called launch().
///
/// Throws before any rank is started: ConfigError for wrong options or a missing program; IoError or StoreError if the
/// store cannot be opened or another node cannot be reached. Throws IoError after a success whose output could not be
/// written.
TANDEM_API LaunchOutcome launch(const LaunchOptions& options);

}  // namespace tandem::inline v0::parallel
