#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include <tandem/parallel/job/child_process.h>
#include <tandem/parallel/job/job_link.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/line_output.h>
#include <tandem/parallel/job/local_rank.h>
#include <tandem/parallel/job/rank_end.h>

// Internal: the ranks of one node, from their start to their end.

namespace tandem::inline v0::parallel {

/// How an attempt ended.
struct AttemptResult {
  LaunchOutcome outcome;
  double after = 0;                    // seconds to the failure
  bool by_chance = false;              // killed from outside, or lost: the next attempt may succeed
  bool is_final = false;               // a launcher is gone, so no attempt can follow
  std::vector<RankEnd> ends;           // one for each of this node's ranks
  std::deque<std::string> last_lines;  // stderr of the rank to blame
  std::string log;                     // the file with that rank's stderr; empty: none
};

/// One attempt to run the job, on this node.
class Attempt {
 public:
  /// `file` is the path of the program to execute.
  Attempt(const LaunchOptions& options, const std::string& file, const JobFacts& job, JobLink& link,
          const SignalCatcher& signals, const GroupGuard& guard, OutputQueue& output);

  /// Starts the ranks and returns when all have ended. Throws IoError if one cannot be started, after ending the
  /// others.
  AttemptResult run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Suspect {
    LostRank lost;
    Clock::time_point due;  // the wait for a better reason ends here
  };

  LocalRank* local(int rank);
  bool is_over();
  void wait();
  void take_signals();
  void take_messages();
  void take_ended();
  void judge_suspects();
  void press_on();
  void fail(const std::string& cause, int rank, bool by_chance, const std::string& verdict = {});
  void signal_all(int number, const char* name = nullptr);
  AttemptResult result();

  const LaunchOptions& options_;
  JobLink& link_;
  const SignalCatcher& signals_;
  OutputQueue& output_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  Clock::time_point start_ = Clock::now();
  std::vector<pollfd> polled_;
  std::vector<Suspect> suspects_;
  std::string cause_;
  int culprit_ = -1;
  bool by_chance_ = false;
  bool is_final_ = false;
  bool done_reported_ = false;
  int stop_signal_ = 0;
  Clock::time_point failed_at_{};
  Clock::time_point terminate_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace tandem::inline v0::parallel
