#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include <tandem/parallel/comm/work.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/comm_hook.h>
#include <tandem/parallel/distributed/cut_plan.h>
#include <tandem/parallel/distributed/group_link.h>

// Internal: when a bucket of gradients leaves, and how it gets to the other ranks and back.

namespace tandem::inline v0::parallel {

/// The buckets of one pass. Bucket k may leave when all its members are ready and buckets 0 to k - 1 have left, so that
/// buckets leave in one order on all ranks. The last one waits for the end of the pass, where nothing else is left to
/// do.
class BucketSchedule {
 public:
  BucketSchedule() = default;  // for a pass whose gradients stay local
  explicit BucketSchedule(const Buckets& buckets);

  bool is_ready(std::size_t member) const { return ready_[member]; }
  /// Whether all members of this member's bucket are ready.
  bool is_complete(std::size_t member) const { return waiting_[(*members_)[member].bucket] == 0; }
  /// A second time for a member does nothing.
  void mark_ready(std::size_t member);
  bool next_may_leave() const { return !only_last_is_left() && waiting_[left_] == 0; }
  bool only_last_is_left() const { return left_ + 1 == waiting_.size(); }
  /// Takes the next bucket, which counts as sent from then on.
  std::size_t take() { return left_++; }

 private:
  const std::vector<BucketMember>* members_ = nullptr;
  std::vector<bool> ready_;
  std::vector<std::size_t> waiting_;  // for each bucket, how many members are not ready
  std::size_t left_ = 0;
};

/// How buckets are reduced: each by an all-reduce that was planned when the module was wrapped, or by the comm hook.
/// Where ranks share out the updates, a reduce-scatter takes the place of the all-reduce.
///
/// With a hook, a small planned all-reduce goes ahead of the hook's own calls. The calls of different wrappers' hooks
/// look equal and may use another group, so ranks in passes of different wrappers would average unrelated gradients or
/// wait for each other. UsedParameters::agree() would also find such a difference, but only after the hook's calls.
class BucketExchange {
 public:
  /// A collective. With `scatters` each rank gets the mean of its part of a bucket, see ShardedUpdate.
  BucketExchange(const GroupLink& link, const Buckets& buckets, bool scatters);

  /// Throws ConfigError if the wrapper already has a hook.
  void set_hook(CommHook hook);
  /// Whether reduction may change the bytes of this rank's gradient.
  bool may_change_bytes() const noexcept { return link_.size() > 1 || hook_; }
  /// Throws AutogradError if a hook is running in another pass of the engine than `pass`. A hook runs under the
  /// reducer's lock, so a pass that the hook begins would wait for that lock forever. Must be called without the lock.
  void refuse_within_hook(const void* pass) const;

  /// Starts to reduce a bucket in the engine's pass `pass`; null if that pass has delivered its last gradient.
  void start(std::size_t bucket, const void* pass);
  /// Reduces the last bucket on this thread, and returns when all have been reduced.
  void finish();
  /// Drops what hooks have left to finish and waits for planned reductions, after a failure whose error is already
  /// being thrown.
  void give_up() noexcept;

 private:
  const GroupLink& link_;
  const Buckets& buckets_;
  std::vector<CutPlan> plans_;  // one for each bucket; empty if the group has one rank
  CommHook hook_;
  std::vector<CommHook::result_type> finishers_;    // of the pass that runs; a hook's part that waits for its end
  std::atomic<const void*> hook_runs_in_{nullptr};  // a pass of the engine, or `this` after its last gradient
  Tensor turn_;                                     // its value has no meaning
  std::optional<PlannedCollective> compare_;        // reduces turn_: distinguishes passes of different wrappers
};

}  // namespace tandem::inline v0::parallel
