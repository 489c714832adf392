#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include <tandem/core/file.h>
#include <tandem/core/host_name.h>
#include <tandem/core/progress_page.h>
#include <tandem/parallel/job/child_process.h>
#include <tandem/parallel/job/job_link.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/line_output.h>
#include <tandem/parallel/job/rank_end.h>

// Internal: a rank's process, its identity and its output.

namespace tandem::inline v0::parallel {

/// Threads for each of `ranks` on this host; 0 where TANDEM_NUM_THREADS is set.
int threads_per_rank(int ranks);

/// This process's environment, with torchrun's and tandem's variables for rank `local` of this node, which in an
/// elastic job belongs to no generation before `first_generation`.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobLink& link, int local,
                                          int first_generation);

/// One rank of this node.
class LocalRank {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts the process. `plan` has everything except the destination of the output.
  LocalRank(const LaunchOptions& options, int rank, bool continues_log, ChildPlan plan, std::atomic<pid_t>& group);

  /// The rank's number within the job.
  int rank() const noexcept { return rank_; }
  /// "rank 2 (pid 4711 on node7)".
  std::string name() const { return rank_name(rank_, process_->pid(), core::host_name()); }
  /// Whether the launcher has noticed the end of the process.
  bool has_ended() const noexcept { return ended_; }
  /// Whether the process has ended and all its output was passed on.
  bool is_complete() const noexcept { return ended_ && out_.descriptor.get() < 0 && err_.descriptor.get() < 0; }
  /// Notices the end of the process. Returns true once; afterwards status() and the last lines are final.
  bool take_end(OutputQueue& output);
  int status() const noexcept { return status_; }
  /// How far its training was: " after step 406, in its backward pass", or an empty text.
  std::string progress() const { return progress_.text(); }

  /// Sends a signal to the rank's group. `name` is that signal's name if it is meant to end the rank.
  void signal(int number, const char* name);
  /// Adds the descriptors to poll: the end of the process, and its output if `reads`.
  void add_to(std::vector<pollfd>& polled, bool reads) const;
  /// Whether the system cannot report the end of the process, so that the launcher must ask for it.
  bool must_be_asked() const noexcept { return !ended_ && process_->descriptor() < 0; }
  /// Passes on the output that has arrived.
  void pump(OutputQueue& output);

  /// The last lines of the rank's stderr.
  std::deque<std::string> last_lines() const;
  /// The file with the rank's stderr; empty: none.
  const std::string& log() const noexcept { return log_; }
  RankEnd end(Clock::time_point start) const;

 private:
  struct Stream {
    int target;
    LineStream lines;
    core::Descriptor descriptor = {};  // none: closed or not used
  };

  bool read(Stream& stream, OutputQueue& output) const;

  int rank_;
  core::SharedProgress progress_;
  std::unique_ptr<ChildProcess> process_;
  Stream out_;
  Stream err_;
  std::string log_;
  long log_start_ = 0;  // file offset at which this attempt begins
  bool ended_ = false;
  int status_ = 0;
  Clock::time_point ended_at_{};
  std::string asked_;
};

}  // namespace tandem::inline v0::parallel
