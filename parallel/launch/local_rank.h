#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include <tandem/parallel/launch/child_process.h>
#include <tandem/parallel/launch/launch.h>
#include <tandem/parallel/launch/line_output.h>
#include <tandem/parallel/launch/rank_end.h>

// Internal: a rank's process and what it writes.

namespace tandem::inline v0::parallel {

/// One rank of this node.
class LocalRank {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts it. `plan` says all but where its output goes.
  LocalRank(const LaunchOptions& options, int rank, bool continues_log, ChildPlan plan, std::atomic<pid_t>& group);
  ~LocalRank();
  LocalRank(const LocalRank&) = delete;
  LocalRank& operator=(const LocalRank&) = delete;

  /// In the job.
  int rank() const noexcept { return rank_; }
  std::int64_t pid() const noexcept { return pid_; }
  /// Whether its end was taken note of, and all it wrote was passed on.
  bool has_ended() const noexcept { return ended_; }
  bool is_complete() const noexcept { return ended_ && out_.descriptor < 0 && err_.descriptor < 0; }
  /// True once, when it has ended: from here on status() and the last lines are known.
  bool take_end(OutputQueue& output);
  int status() const noexcept { return status_; }
  Clock::time_point ended_at() const noexcept { return ended_at_; }

  /// To its group. `name`: that of a signal that is to end it.
  void signal(int number, const char* name);
  /// What waits for: its end, and its output if `reads`.
  void add_to(std::vector<pollfd>& polled, bool reads) const;
  /// Whether the system cannot say when it ends.
  bool must_be_asked() const noexcept { return !ended_ && process_->descriptor() < 0; }
  /// Passes on what it has written.
  void pump(OutputQueue& output);

  /// Of its stderr.
  std::deque<std::string> last_lines() const;
  /// The file that has it; empty: none.
  const std::string& log() const noexcept { return log_; }
  RankEnd end(Clock::time_point start) const;

 private:
  struct Stream {
    int descriptor = -1;  // -1: closed, or there is none
    int target;
    LineStream lines;
  };

  bool read(Stream& stream, OutputQueue& output) const;

  int rank_;
  std::unique_ptr<ChildProcess> process_;
  std::int64_t pid_ = 0;
  Stream out_;
  Stream err_;
  std::string log_;
  long log_start_ = 0;  // where this attempt's part begins
  bool ended_ = false;
  int status_ = 0;
  Clock::time_point ended_at_{};
  std::string asked_;
};

}  // namespace tandem::inline v0::parallel
