#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/sharding.h>
#include <tandem/parallel/comm/partner_totals.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/tensor/recorder.h>

// Internal: ranks that share out the optimiser's updates (ZeRO, stage 1).

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

/// Gives each rank a part of every bucket: the rank's optimisers keep state for that part, update it, and get the other
/// parts from the other ranks.
class ShardedUpdate final : public autograd::Sharding {
 public:
  /// A collective. From now on the leaves of all members have parts. With `drops_gradients` the memory of the other
  /// ranks' parts of the gradients is given back after each pass; throws ConfigError if some of it is on a GPU.
  ShardedUpdate(const GroupLink& link, const Buckets& buckets, bool drops_gradients);
  ~ShardedUpdate();
  ShardedUpdate(const ShardedUpdate&) = delete;
  ShardedUpdate& operator=(const ShardedUpdate&) = delete;

  std::string name() const override { return link_.wrapper_name(); }
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  void updated(const std::vector<const autograd::Leaf*>& leaves) override;
  void join(const tandem::detail::View& tensor) override;

  /// Throws AutogradError if a backward pass cannot begin: a gradient of an earlier pass is still there, of which this
  /// rank has only its part, or a hook waits for the whole gradients of a pass of all ranks (`synced`).
  void check_pass(bool synced) const;
  /// The gradients of a pass were reduced.
  void note_reduced() const;

 private:
  const GroupLink& link_;
  const Buckets& buckets_;
  std::vector<CutPlan> values_;            // one for each bucket
  std::shared_ptr<PartnerTotals> totals_;  // of flags and norms
  bool drops_gradients_;
  tandem::detail::Watched life_;  // captured steps refer to this object
};

}  // namespace tandem::inline v0::parallel
