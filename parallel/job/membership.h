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
//     40123 2 0 1 3        port of the generation's own store, how many ranks that came back it knows, its members
//
// The members meet in the generation's own store, at the same host and with a token of its own. A loss becomes the
// verdict of that store alone: the members' group ends, and they look for the newest note, which "elastic/newest"
// names. A rank that is late may still come to the store of an older generation, where it hears the verdict; so these
// stores stay until the end of the attempt. The end of the whole job is the verdict of all stores.
//
// A rank that was started again adds 1 to "elastic/newcomers" and reads notes until one has its number. A rank whose
// function has ended writes the number of its generation under "elastic/done/<rank>": no later one waits for it.

namespace tandem::inline v0::parallel {

/// The first generation to which a rank can belong: set for the ranks of an elastic job.
inline constexpr const char* kElasticVariable = "TANDEM_ELASTIC";
/// The number of the newest generation.
inline constexpr const char* kNewestGeneration = "elastic/newest";
/// Counts the ranks that have come back.
inline constexpr const char* kNewcomers = "elastic/newcomers";
/// The verdict by which a generation asks its launcher to take in the ranks that have come back.
inline constexpr const char* kMeetAnew = "the ranks meet anew";

/// One generation of a job's ranks.
struct GenerationNote {
  std::uint16_t port = 0;         // of its store
  std::int64_t newcomers = 0;     // that had come back when newcomers were taken in last
  std::vector<int> members = {};  // numbers in the job, in the order of their ranks in the generation

  static std::string key(int generation);
  std::string text() const;
  /// Throws StoreError if that is no note.
  static GenerationNote parse(const std::string& text);
  /// The member's rank in the generation; -1: it is not in it.
  int rank_of(int number) const;
};

/// Where a rank writes the generation in which its function has ended.
std::string done_key(int rank);

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
  /// Begins the next generation, and tells the ranks of the last one why. With `takes_in` the ranks that have come back
  /// are among the members.
  void change(std::vector<int> members, const std::string& cause, bool takes_in = false);
  /// The members that have come to the current generation's store.
  std::vector<int> arrived() const;
  /// The generation in which the rank's function has ended; -1: it has not.
  int done_in(int rank);
  /// The job is over: tells the ranks of the current generation.
  void publish(const std::string& verdict);

 private:
  std::unique_ptr<StoreServer> open(int generation);
  void note();
  std::int64_t number_in(const std::string& key, std::int64_t otherwise);

  JobLink& link_;
  std::string host_;
  std::chrono::milliseconds heartbeat_limit_;
  std::unique_ptr<Store> store_;  // the job's
  int generation_ = 0;
  std::int64_t newcomers_ = 0;  // see GenerationNote
  std::vector<int> members_;
  std::vector<std::unique_ptr<StoreServer>> servers_;  // of all generations
};

}  // namespace tandem::inline v0::parallel
