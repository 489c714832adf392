#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/process_group_guard.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/rendezvous.h>

// Internal: a process that is a rank of a job.

namespace tandem::inline v0::parallel {

/// Tells the user who is waited for, after 2 s and then every 10 s.
class WaitingLines {
 public:
  using Clock = std::chrono::steady_clock;

  /// `tell` gets the lines; empty: stderr does.
  explicit WaitingLines(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}
  /// Tells the line that `line` returns, unless that is empty, if it is time.
  void offer(core::FunctionRef<std::string()> line);

 private:
  std::function<void(const std::string&)> tell_;
  Clock::time_point due_ = Clock::now() + std::chrono::seconds(2);
};

/// Throws ConfigError for options out of range.
void check_options(const InitOptions& options);

/// The place at which the ranks of a group meet, and this rank's among them.
struct MeetingPlace {
  InitMethod method;
  WorldInfo world;
  std::optional<JobToken> token;
  std::vector<int> numbers = {};  // of the ranks in the job; empty: 0, 1, 2, ...
};

/// This process as a rank of a group of processes, from their meeting to the goodbye.
class JoinedGroup {
 public:
  /// Returns when all ranks are connected. Throws ConfigError, CommError and StoreError, see ProcessGroupGuard.
  JoinedGroup(const InitOptions& options, const MeetingPlace& place);
  JoinedGroup(const JoinedGroup&) = delete;
  JoinedGroup& operator=(const JoinedGroup&) = delete;

  ProcessGroup& group() noexcept { return *group_; }
  const WorldInfo& world() const noexcept { return world_; }
  /// Ends the group on all ranks with this verdict, unless there is another one.
  void announce(const std::string& verdict) { rendezvous_->announce_verdict(verdict); }
  /// From now on the failures of this rank are not announced.
  void keep_quiet() noexcept { heard_ = true; }

 private:
  void wait_for_store(const std::string& reason);
  void hear(const CommError& cause);
  void tell(const CommError& cause);

  WorldInfo world_;
  int number_;  // in the job
  std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();
  std::atomic<bool> heard_ = false;  // another rank caused the alarm
  WaitingLines lines_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::optional<Alarm::Subscription> announcement_;
  std::unique_ptr<ProcessGroup> group_;
};

/// The error that a rank throws for an error of its store: the job's verdict, or a failure to meet.
CommError error_of(const StoreError& error);

}  // namespace tandem::inline v0::parallel
