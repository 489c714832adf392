#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <tandem/parallel/job/job_link.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/job/local_rank.h>
#include <tandem/parallel/job/membership.h>

// Internal: a launcher whose job goes on without lost ranks.

namespace tandem::inline v0::parallel {

/// The ranks of an elastic job: decides who goes on when one is lost, and starts lost ranks again.
class ElasticJob {
 public:
  using Clock = std::chrono::steady_clock;
  using Ranks = std::vector<std::unique_ptr<LocalRank>>;

  /// The attempt does this for the object.
  struct Hooks {
    std::function<void(const std::string& cause, int rank, bool by_chance)> fail;  // the job
    std::function<void(const std::string& cause)> went_on;                         // without a rank
    std::function<void(const std::string& text)> note;
    std::function<std::unique_ptr<LocalRank>(int rank, int first_generation)> start;
    std::function<void()> drop_blame;  // of those that other members of the last generation have named
  };

  /// `ranks` has all ranks by their numbers, and may still be empty.
  ElasticJob(const LaunchOptions& options, JobLink& link, Ranks& ranks, Hooks hooks);

  /// The number of the current generation.
  int generation() const noexcept { return membership_.generation(); }
  /// Whether a failure of this rank can be the job's: whether it belongs to the current generation, and the others do
  /// not do without it.
  bool needs(int rank) const { return membership_.has(rank) && !(lost_.contains(rank) && is_done_); }
  /// Tells the current generation that the job is over.
  void publish(const std::string& verdict) { membership_.publish(verdict); }

  /// The rank is lost. A process that still runs is killed; once it has ended, call this again. The others then go on,
  /// or the job fails if too few are left.
  void lose(int rank, const std::string& cause, bool by_chance);
  /// Why the rank was killed here; null: it was not.
  const std::string* why_killed(int rank) const;
  /// The members have left their group at the end of an epoch, to take in ranks that have come back.
  void take_in_newcomers();
  /// Starts the lost ranks again whose time has come, and looks for members that will not come to their generation. No
  /// ranks are started while the job `is_ending`.
  void look_after(bool is_ending);
  /// The time to call look_after().
  Clock::time_point next_look() const;
  /// Returns true once, when no member runs any more: ranks that wait to come back are not needed.
  bool becomes_done();
  /// Whether that was so.
  bool is_done() const noexcept { return is_done_; }

 private:
  struct Restart {
    int rank;
    Clock::time_point due;
  };

  LocalRank& at(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  std::vector<int> running_members() const;
  std::vector<int> working_members();
  void change(std::vector<int> members, const std::string& cause, bool takes_in = false);
  void start_again();
  void look_for_absent();

  const LaunchOptions& options_;
  JobLink& link_;
  Ranks& ranks_;
  Hooks hooks_;
  Membership membership_;
  std::map<int, std::string> killed_;  // ranks that have not ended yet, and why
  std::set<int> lost_;                 // and not started again
  std::vector<Restart> restarts_;
  int starts_ = 0;  // of lost ranks
  bool is_done_ = false;
  bool is_meeting_ = false;  // members have yet to come to the current generation
  Clock::time_point next_meeting_look_{};
};

}  // namespace tandem::inline v0::parallel
