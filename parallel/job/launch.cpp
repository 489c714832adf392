#include <tandem/parallel/job/launch.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/parallel/job/attempt.h>
#include <tandem/parallel/job/local_rank.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/text.h>

// A launcher runs attempts one after another until one succeeds or no further attempt is allowed:
//
// 1. JobLink: node 0 opens the attempt's store, the other nodes' launchers find it, and all meet there.
// 2. run_ranks(): this node starts its ranks and watches them until all have ended.
// 3. After a failure all nodes start the next attempt, with a new store and a new token, unless restarts are used up,
//    the same failure came twice, or a launcher is gone.
//
// The launcher is one thread with poll(); the store's server has its own thread. Some objects outlive the attempts: the
// guard process, which cleans up if this process is killed, the signal catcher, and the queue of the ranks' output.

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstRestartPause{1'000};
constexpr milliseconds kLongestRestartPause{30'000};
constexpr double kFlushSeconds = 30;  // for the last lines if nobody reads them

void check_options(const LaunchOptions& options) {
  check<ConfigError>(!options.command.empty() && !options.command.front().empty(), "launch: no program is given");
  check<ConfigError>(options.ranks >= 1 && options.nodes >= 1 && options.ranks <= kMaxWorldSize / options.nodes,
                     "launch: {} nodes with {} ranks: expected at least 1 of each, and at most {} ranks in all",
                     options.nodes, options.ranks, kMaxWorldSize);
  check<ConfigError>(options.node >= 0 && options.node < options.nodes,
                     "launch: node {} of {}: expected a number from 0 to {}", options.node, options.nodes,
                     options.nodes - 1);
  check<ConfigError>(options.nodes == 1 || options.port != 0,
                     "launch: {} nodes need the address of node 0's store: expected a port, got 0", options.nodes);
  check<ConfigError>(
      options.nodes == 1 || options.token.has_value(),
      "launch: {} nodes need a token that all launchers share [TDM-E609]: export TANDEM_JOB_TOKEN=$(openssl rand "
      "-hex 32) on one, and the same value on the others",
      options.nodes);
  check<ConfigError>(options.max_restarts >= 0 && options.kill_timeout >= milliseconds(0) &&
                         options.heartbeat_limit >= milliseconds(20) && options.node_timeout >= milliseconds(1),
                     "launch: expected max_restarts and kill_timeout of 0 or more, a heartbeat_limit of 20 ms or more "
                     "and a node_timeout of 1 ms or more, got {}, {} ms, {} ms and {} ms",
                     options.max_restarts, options.kill_timeout.count(), options.heartbeat_limit.count(),
                     options.node_timeout.count());
  check<ConfigError>(options.elastic >= 0 && options.elastic <= options.ranks,
                     "launch: elastic is {}: expected 0, or how many of the {} ranks must be left for the job to go on",
                     options.elastic, options.ranks);
  check<ConfigError>(options.elastic == 0 || options.nodes == 1,
                     "launch: elastic jobs run on one host, and there are {} nodes; leave elastic out, and give "
                     "max_restarts",
                     options.nodes);
  struct sigaction action{};
  ::sigaction(SIGCHLD, nullptr, &action);
  check<ConfigError>(action.sa_handler != SIG_IGN && (action.sa_flags & SA_NOCLDWAIT) == 0,
                     "launch: this process ignores SIGCHLD, so that nobody would know how its ranks ended: "
                     "signal(SIGCHLD, SIG_DFL)");
}

void make_log_folder(const LaunchOptions& options) {
  if (options.output != LaunchOptions::Output::files) {
    return;
  }
  std::error_code error;
  if (std::filesystem::create_directories(options.log_folder, error)) {  // what ranks print is nobody else's business
    std::filesystem::permissions(options.log_folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    core::fail_io("make the folder", options.log_folder, error.value());
  }
}

// Waits for `time` or for a signal, and returns the signal.
int pause_for(milliseconds time, const SignalCatcher& signals) {
  pollfd polled{signals.descriptor(), POLLIN, 0};
  ::poll(&polled, 1, static_cast<int>(time.count()));
  return signals.take_end();
}

// A failure that happens twice in the same place will happen a third time.
bool is_the_same(const AttemptResult& last, const LaunchOutcome& before) {
  return !last.by_chance && without_pid(last.outcome.cause) == without_pid(before.cause);
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options),
        file_(options.file.empty() ? find_program(options.command.front()) : options.file),
        guard_(static_cast<std::size_t>(options.ranks)),
        signals_(options.take_signals),
        token_(options.token ? *options.token : JobToken::generate()) {}

  LaunchOutcome run() {
    LaunchOutcome before;
    for (int attempt = 0;; ++attempt) {
      const AttemptResult result = run_attempt(attempt);
      const LaunchOutcome& outcome = result.outcome;
      const bool failed = !outcome.cause.empty();
      const bool goes_on = failed && !result.is_final && attempt < options_.max_restarts;
      const bool is_deterministic = goes_on && attempt > 0 && is_the_same(result, before);
      const milliseconds pause = std::min(kFirstRestartPause * (1 << std::min(attempt, 5)), kLongestRestartPause);
      if (failed) {
        report(result, is_deterministic ? "deterministic failure: the same as before the restart, so there is no other"
                       : goes_on ? fmt::format("restart {} of {} follows in {} s", attempt + 1, options_.max_restarts,
                                               pause.count() / 1000)
                                 : "");
      } else if (outcome.signal != 0) {
        note(fmt::format("stopped by {}{}", signal_text(outcome.signal),
                         outcome.signal == SIGPIPE ? ": nobody reads the output any more" : ""));
      }
      output_.flush(kFlushSeconds);
      if (!goes_on || is_deterministic) {
        return checked(outcome);
      }
      before = outcome;
      if (const int signal = pause_for(pause, signals_)) {
        return {.exit_code = 128 + signal, .cause = outcome.cause, .rank = outcome.rank, .signal = signal};
      }
    }
  }

 private:
  AttemptResult run_attempt(int attempt) {
    JobLink link(options_, token_, attempt, run_id_);
    if (const int signal = link.wait_for_nodes(signals_, [this](const std::string& text) { note(text); })) {
      AttemptResult stopped;
      stopped.outcome = {.exit_code = 128 + signal, .signal = signal};
      return stopped;
    }
    run_id_ = link.run_id();
    if (attempt == 0) {
      const int ranks = options_.nodes * options_.ranks;
      const int threads = threads_per_rank(options_.ranks);
      note(fmt::format(
          "{} {}{}{}, store at {}:{}", ranks, ranks == 1 ? "rank" : "ranks",
          options_.nodes > 1 ? fmt::format(" on {} nodes", options_.nodes) : "",
          threads > 0 ? fmt::format(", {} {} each (TANDEM_NUM_THREADS)", threads, threads == 1 ? "thread" : "threads")
                      : "",
          options_.host, link.port()));
    }
    return run_ranks(options_, file_, link, signals_, guard_, output_);
  }

  void report(const AttemptResult& result, const std::string& remark) {
    if (options_.narrate) {
      output_.push(STDERR_FILENO, failure_report(result, remark));
    }
  }

  void note(const std::string& text) {
    if (options_.narrate) {
      output_.push(STDERR_FILENO, fmt::format("tandem run: {}\n", text));
      output_.write_some();
    }
  }

  // A result that could not be written must not count as success.
  LaunchOutcome checked(LaunchOutcome outcome) const {
    if (outcome.exit_code == 0 && output_.error() != 0) {
      core::fail_io("write the output of ranks to", "stdout or stderr", output_.error());
    }
    return outcome;
  }

  const LaunchOptions& options_;
  std::string file_;
  GroupGuard guard_;  // created before this process starts threads or opens sockets
  SignalCatcher signals_;
  JobToken token_;
  std::string run_id_{};
  OutputQueue output_;
};

}  // namespace

std::string find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  struct stat status{};
  const bool is_there = ::stat(name.c_str(), &status) == 0;
  if (name.find('/') != std::string::npos) {
    check<ConfigError>(is_there, "there is no program '{}'", name);
    check<ConfigError>(S_ISREG(status.st_mode), "'{}' is no program, but a {}", name,
                       S_ISDIR(status.st_mode) ? "folder" : "special file");
    check<ConfigError>(is_program(name), "'{}' is not executable: chmod +x {}", name, name);
    return name;
  }
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/bin:/usr/bin" : path;
  for (std::size_t start = 0; start <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', start), folders.size());
    const std::string folder = folders.substr(start, end - start);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (!name.empty() && is_program(candidate)) {
      return candidate;
    }
    start = end + 1;
  }
  fail<ConfigError>("there is no program '{}' in PATH{}", name,
                    is_there && S_ISREG(status.st_mode) ? fmt::format("; did you mean ./{}?", name) : "");
}

LaunchOutcome launch(const LaunchOptions& options) {
  check_options(options);
  make_log_folder(options);
  return Launcher(options).run();
}

}  // namespace tandem::inline v0::parallel
