#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/tensor/view.h>

// Internal: buckets that are cut into one part for each rank.

namespace tandem::inline v0::parallel {

/// A bucket that is cut into one part for each rank, with an end that is left over, if the ranks do not divide the
/// bucket. The end is the last rank's, too.
struct CutBucket {
  std::int64_t part = 0;  // elements
  std::int64_t rest = 0;

  /// Parts begin at multiples of kStep bytes, so that updates find aligned memory.
  static constexpr std::int64_t kStep = 64;
  CutBucket(std::int64_t numel, DType dtype, int ranks);
  std::int64_t begin(int rank) const { return part * rank; }
  std::int64_t end(int rank, int ranks) const { return part * (rank + 1) + (rank + 1 == ranks ? rest : 0); }
};

/// The collectives of a bucket: on its parts, and on the end that is left over, where there is any.
class CutPlan {
 public:
  explicit CutPlan(std::vector<PlannedCollective> calls) : calls_(std::move(calls)) {}
  void start();
  /// start() and wait() on this thread.
  void run();
  void wait();

 private:
  std::vector<PlannedCollective> calls_;
};

/// Reduces a bucket of gradients so that each rank has the mean in its part. A collective.
CutPlan plan_reduce_parts(ProcessGroup& group, const tandem::detail::View& gradients, const PlanName& name);
/// Gives each rank the parts of all others: `values` lie like a bucket's gradients. A collective.
CutPlan plan_gather_parts(ProcessGroup& group, const tandem::detail::View& values, const PlanName& name);

/// Gives back the memory of all parts of a bucket but that of `rank`, in whole pages. They read as 0 afterwards.
void drop_other_parts(const tandem::detail::View& values, int rank, int ranks);

}  // namespace tandem::inline v0::parallel
