#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tandem/parallel/comm/work.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/parallel/distributed/join.h>
#include <tandem/tensor/tensor.h>

// Internal: how ranks with unequal inputs agree.

namespace tandem::inline v0::parallel {

/// The weights of one pass. A pass outside of a Join takes the plain mean and rank 0's buffers.
struct PassWeights {
  double mine = 1;       // factor of this rank's gradients; at most 1, so that 16 bits do not overflow
  double mean = 1;       // factor of the mean over the ranks
  int buffers_from = 0;  // the lowest rank that has samples in the pass
};

/// One Join on one rank. In each reduced pass, before its first gradient, the ranks exchange a record (a small planned
/// all-reduce): each rank says which wrapper's pass it is in, or that its input has ended; how many samples and passes
/// the gradients of each wrapper are of; and whether a wrapper's parameters have changed since the record before. From
/// the same record each rank computes how much its own gradients weigh, and finds the same differences, so that an
/// error is thrown on all ranks.
///
/// A rank with input calls reduce() within backward(). A rank whose input has ended calls follow() until no rank has
/// input, and takes its weight in that pass, mostly 0, from weights_of(). Gradients that no_sync() has left when the
/// last input ends are reduced in a pass of their own (samples_left()).
///
/// Works on the wrappers' Buckets and knows no Reducer: Join and Reducer decide when a wrapper reduces.
class JoinState {
 public:
  /// A collective. The buckets, one of each wrapper, outlive it.
  JoinState(std::vector<Buckets*> buckets, const GroupLink& link, const JoinOptions& options);

  const GroupLink& link() const noexcept { return link_; }
  /// The next forward pass has `count` samples.
  void set_samples(std::int64_t count) { next_samples_ = count; }
  /// How many samples a forward pass with these inputs has.
  std::int64_t samples_of(std::span<const Shape> inputs);

  /// A backward pass of a wrapper begins, and has not added to gradients yet. Scales accumulated gradients so that the
  /// pass may add to them.
  void begin_pass(std::size_t wrapper, std::int64_t samples);
  /// The pass has ended, and its gradients stay local. Throws AutogradError if they were added to reduced ones.
  void end_local_pass(std::size_t wrapper);
  /// This rank reduces gradients of a wrapper, and so do all whose inputs have not ended. A collective.
  PassWeights reduce(std::size_t wrapper);

  /// This rank's input has ended: the wrapper whose gradients the others reduce, or nothing if all have ended.
  /// A collective.
  std::optional<std::size_t> follow();
  /// Computes the weights from the latest record, and forgets the accumulated samples.
  PassWeights weights_of(std::size_t wrapper);
  /// The number of samples that no reduced pass has included yet, by the latest record.
  std::int64_t samples_left(std::size_t wrapper) const;

 private:
  /// One rank's statement on one wrapper. Travels as i64 numbers, so all members have that type.
  struct Entry {
    // Gradients of several local passes, or of those and the one that is to be reduced.
    std::int64_t samples = 0;
    std::int64_t passes = 0;
    std::int64_t unit = 0;   // of each pass: its samples, times its gradients, were added and divided by this
    std::int64_t onto = 0;   // the set of gradients that existed before: Buckets::set_of_gradients()
    std::int64_t early = 0;  // 1: some of them are from before wrapping, or from before the Join
    // The rest is true of the rank as it makes the record.
    std::int64_t turn = 0;     // 1: it reduces this wrapper; a rank that reduces none has reached the end of its input
    std::int64_t changed = 0;  // 1: the wrapper's parameters have changed since the record before
    std::int64_t reduction = 0;  // of its losses, the same for each wrapper
  };
  struct Wrapper {
    Buckets* buckets;
    std::uint64_t parameter_versions;  // at the latest record
    Entry accumulated{};
    Entry with_pass{};  // and with the pass that runs
  };

  void check_nothing_left();
  void check_none_early(const std::vector<Entry>& said) const;
  void exchange(std::optional<std::size_t> turn);
  void check_agreement() const;
  std::vector<Entry> said_of(std::size_t wrapper) const;

  GroupLink link_;
  JoinOptions options_;
  std::vector<Wrapper> wrappers_;
  std::size_t ranks_;
  Tensor record_;                          // an Entry of each rank on each wrapper, rank by rank
  std::span<Entry> said_;                  // the same memory
  std::optional<PlannedCollective> plan_;  // reduces record_; empty if the group has one rank
  std::optional<std::int64_t> next_samples_;
  std::shared_ptr<const ProcessGroup*> token_;  // lives as long as this thread is in the Join
};

}  // namespace tandem::inline v0::parallel
