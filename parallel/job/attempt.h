#pragma once

#include <deque>
#include <string>
#include <vector>

#include <tandem/parallel/job/child_process.h>
#include <tandem/parallel/job/job_link.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/line_output.h>
#include <tandem/parallel/job/rank_end.h>

// Internal: the ranks of one node, from their start to their end.

namespace tandem::inline v0::parallel {

/// How an attempt ended.
struct AttemptResult {
  LaunchOutcome outcome;
  double after = 0;                         // seconds to the failure
  bool by_chance = false;                   // killed from outside, or lost: the next attempt may succeed
  bool is_final = false;                    // a launcher is gone, so no attempt can follow
  std::vector<RankEnd> ends = {};           // one for each of this node's ranks
  std::deque<std::string> last_lines = {};  // stderr of the rank to blame
  std::string log = {};                     // the file with that rank's stderr; empty: none
};

/// One attempt to run the job, on this node: starts the ranks and returns when all have ended. `file` is the path of
/// the program to execute. Throws IoError if a rank cannot be started, after ending the others.
AttemptResult run_ranks(const LaunchOptions& options, const std::string& file, JobLink& link,
                        const SignalCatcher& signals, GroupGuard& guard, OutputQueue& output);

}  // namespace tandem::inline v0::parallel
