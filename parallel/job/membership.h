#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/parallel/job/job_link.h>
#include <tandem/parallel/job/launch.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/store_server.h>

// Internal: who belongs to an elastic job, as its launcher and its ranks write and read it.
//
// The job's store, at the address that ranks know from their environment, lives as long as the attempt. In it the
// launcher notes each generation under "elastic/<number>" before the ranks need it:
//
//     40123 2 0 1 3        port of the generation's own store, how many ranks had come back by then, its members
//
// The members meet in the generation's own store, at the same host and with a token of its own. A loss becomes the
// verdict of that store alone: the members' group ends, and they look for the next note. The end of the whole job is
// the verdict of both stores. A rank that was started again adds 1 to "elastic/newcomers" and reads notes until one has
// its number.

namespace tandem::inline v0::parallel {

/// The first generation to which a rank can belong: set for the ranks of an elastic job.
inline constexpr const char* kElasticVariable = "TANDEM_ELASTIC";
/// Counts the ranks that have come back.
inline constexpr const char* kNewcomers = "elastic/newcomers";
/// The verdict by which a generation asks its launcher to take in the ranks that have come back.
inline constexpr const char* kMeetAnew = "the ranks meet anew";

/// One generation of a job's ranks.
struct GenerationNote {
  std::uint16_t port = 0;         // of its store
  std::int64_t newcomers = 0;     // that had come back when it was noted
  std::vector<int> members = {};  // numbers in the job, in the order of their ranks in the generation

  static std::string key(int generation);
  std::string text() const;
  /// Throws StoreError if that is no note.
  static GenerationNote parse(const std::string& text);
  /// The member's rank in the generation; -1: it is not in it.
  int rank_of(int number) const;
};

/// The token of a generation's store.
JobToken token_of_generation(const JobToken& job, int generation);

/// The launcher's side. Not thread-safe.
class Membership {
 public:
  /// Notes generation 0: all ranks. Verdicts of generations go to `link`.
  Membership(const LaunchOptions& options, JobLink& link);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  int generation() const noexcept { return generation_; }
  const std::vector<int>& members() const noexcept { return members_; }
  bool has(int rank) const;
  /// Begins the next generation, and tells the ranks of the last one why.
  void change(std::vector<int> members, const std::string& cause);
  /// The job is over: tells the ranks of the current generation.
  void publish(const std::string& verdict);

 private:
  std::unique_ptr<StoreServer> open(int generation);
  void note();

  JobLink& link_;
  std::string host_;
  std::chrono::milliseconds heartbeat_limit_;
  std::unique_ptr<Store> store_;  // the job's
  int generation_ = 0;
  std::vector<int> members_;
  std::unique_ptr<StoreServer> server_;  // of the current generation ...
  std::unique_ptr<StoreServer> last_;    // ... and of the one before, whose ranks may still be hearing why it ended
};

}  // namespace tandem::inline v0::parallel
