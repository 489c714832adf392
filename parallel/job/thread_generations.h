#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/threads/local_group.h>

// Internal: ranks that are threads, from one generation to the next (elastic_rank.h).

namespace tandem::inline v0::parallel {

/// The generations of the ranks of one spawn(). Ranks have the numbers of the first generation. Thread-safe.
class ThreadGenerations {
 public:
  /// Makes the groups of generation 0, in which all ranks are. A generation needs `least` ranks; those that have ended
  /// well count, too.
  ThreadGenerations(int ranks, int least, const ProcessGroupOptions& options);

  /// Takes the rank's group of the current generation.
  std::unique_ptr<ProcessGroup> take(int rank);
  /// The rank's generation has lost a rank. Waits until each rank of it has called this or has left, and takes the
  /// rank's group of the next generation. Throws `cause` if too few are left, or one computes on for too long.
  std::unique_ptr<ProcessGroup> take_next(int rank, const CommError& cause);
  /// The rank's function has ended; `how` continues "the rank's function ".
  void leave(int rank, bool well, const std::string& how);

 private:
  enum class State : std::uint8_t { runs, waits, ended_well, lost };

  std::int64_t count(State state) const;
  void begin_if_all_wait();
  void begin(const std::vector<int>& members);

  std::mutex mutex_;
  std::condition_variable changed_;
  int least_;
  ProcessGroupOptions options_;
  std::shared_ptr<LocalWorld> world_;  // of the current generation
  int generation_ = 0;
  bool has_too_few_ = false;
  std::vector<State> states_;
  std::vector<std::unique_ptr<ProcessGroup>> groups_;  // of the current generation, until a rank takes its own
};

/// A thread keeps this from one generation to the next.
class ThreadElasticRank final : public ElasticRank {
 public:
  using ElasticRank::begin;
  bool newcomers_wait() override { return false; }  // a thread does not come back
  void prepare_to_meet() override {}
};

}  // namespace tandem::inline v0::parallel
