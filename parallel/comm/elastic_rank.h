#pragma once

#include <any>
#include <map>
#include <string_view>

#include <tandem/core/error.h>

// Internal: a rank whose job goes on with the ranks that are left (run_elastic(), spawn() with `elastic`).
//
// The ranks of such a job make up one generation after another. A generation begins when its ranks have met and ends
// when one of them is lost, or when all of them agree to meet anew. The rank's function then runs again, in the same
// process, as a rank of the next generation.

namespace tandem::inline v0::parallel {

/// Thrown by a function of all ranks that finds that the ranks must meet anew. Ends the rank's function.
class RanksMeetAnew : public Error {
 public:
  RanksMeetAnew() : Error("the ranks meet anew, because others have come back") {}
};

/// A rank keeps this from one generation to the next.
class ElasticRank {
 public:
  virtual ~ElasticRank() = default;
  ElasticRank(const ElasticRank&) = delete;
  ElasticRank& operator=(const ElasticRank&) = delete;

  /// The number of the generation, from 0.
  int generation() const noexcept { return generation_; }
  /// Whether ranks that were lost have come back and wait to be taken in. Asked on one rank of the generation.
  virtual bool newcomers_wait() = 0;
  /// All ranks have agreed to meet anew, and are about to throw RanksMeetAnew. From now on the others' leaving is no
  /// failure.
  virtual void prepare_to_meet() = 0;
  /// Numbers what the rank's function makes, in its order: the first one is 0 in each generation.
  int next_number() noexcept { return next_number_++; }
  /// The object of that number leaves something here for its successor. Empty at first.
  std::any& memory(int number) { return memories_[number]; }

 protected:
  ElasticRank() = default;
  void begin(int generation) noexcept {
    generation_ = generation;
    next_number_ = 0;
  }

 private:
  int generation_ = 0;
  int next_number_ = 0;
  std::map<int, std::any> memories_;
};

/// Whether the others go on after this error, which rank `rank` of the job has caught: another rank is lost or has
/// given up. After other errors, as of ranks that make different calls, they would fail again.
bool is_survivable(const CommError& error, int rank);

/// Throws ConfigError in an elastic job, if no other rank has what this rank has: "Pipeline", "its stage".
void check_not_elastic(std::string_view what, std::string_view part);

}  // namespace tandem::inline v0::parallel
