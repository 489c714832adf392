#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <tandem/parallel/comm/planned_all_reduce.h>
#include <tandem/parallel/distributed/join.h>
#include <tandem/tensor/tensor.h>

// Internal: what ranks with unequal inputs agree on.

namespace tandem::inline v0::parallel {

/// Of one Join on one rank. Before a pass is reduced each rank says which wrapper's it is, or that its input has ended;
/// of how many samples and passes the gradients of each wrapper are; and whether its parameters have changed since it
/// said so before. Each then knows how much its own gradients weigh.
class JoinState {
 public:
  /// A collective.
  JoinState(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options);
  ~JoinState();
  JoinState(const JoinState&) = delete;
  JoinState& operator=(const JoinState&) = delete;

  const std::vector<std::shared_ptr<Reducer>>& reducers() const noexcept { return reducers_; }
  /// Of the next forward pass.
  void set_samples(std::int64_t count) { next_samples_ = count; }
  /// How many a forward pass with these inputs has.
  std::int64_t samples_of(std::span<const Shape> inputs);

  /// A backward pass of a wrapper begins, in which nothing has been added to gradients yet. What was accumulated before
  /// is scaled so that it may be added to.
  void begin_pass(std::size_t wrapper, std::int64_t samples);
  /// It has ended, and stays local. Throws AutogradError where it was added to what was reduced before.
  void end_local_pass(std::size_t wrapper);

  struct Turn {
    double weight;     // of this rank's gradients, in a mean over the ranks; at most 1, for what has 16 bits
    double factor;     // of that mean
    int buffers_from;  // the lowest rank that gives samples
  };
  /// This rank reduces gradients of a wrapper, and so do all whose inputs have not ended. A collective.
  Turn reduce(std::size_t wrapper);
  /// This rank's input has ended: the wrapper whose gradients the others reduce, or nothing if all have ended.
  /// A collective.
  std::optional<std::size_t> follow();
  /// What the latest of those says of a wrapper; forgets what was accumulated.
  Turn turn_of(std::size_t wrapper);
  /// The same for samples that are in nobody's reduced pass yet.
  std::int64_t samples_left(std::size_t wrapper) const;

  /// Ends the group on all ranks.
  void abort(std::string_view reason);

 private:
  /// Gradients of several local passes.
  struct Accumulated {
    std::int64_t samples = 0;
    std::int64_t passes = 0;
    std::int64_t unit = 0;  // of each pass: its samples, times its gradients, were added and divided by this
    std::int64_t onto = 0;  // what has gradients that were there before: Reducer::set_of_gradients()
    bool early = false;     // some of them from before wrapping
  };
  /// What a rank says, and of each wrapper.
  enum Field : std::size_t { turn, changed, reduction, fields };
  enum WrapperField : std::size_t { its_samples, its_passes, its_unit, its_onto, its_early, wrapper_fields };

  void exchange(std::optional<std::size_t> turn);
  void check_agreement() const;
  void check_nothing_left();
  void check_none_early(std::size_t wrapper) const;
  std::int64_t said(std::size_t rank, std::size_t field) const { return values_[rank * width_ + field]; }
  std::int64_t said_of(std::size_t wrapper, std::size_t rank, WrapperField field) const {
    return said(rank, fields + wrapper_fields * wrapper + field);
  }
  std::int64_t changed_wrappers();

  std::vector<std::shared_ptr<Reducer>> reducers_;
  JoinOptions options_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t width_;                     // how many numbers a rank says
  Tensor record_;                         // those of all ranks
  std::span<std::int64_t> values_;        // of record_
  std::optional<PlannedAllReduce> plan_;  // of record_; none where one rank is alone
  std::vector<Accumulated> accumulated_;  // of each wrapper
  std::vector<Accumulated> with_pass_;    // and with the pass that runs
  std::vector<std::uint64_t> versions_;   // of each wrapper's parameters, at the latest exchange
  std::optional<std::int64_t> next_samples_;
  std::shared_ptr<const ProcessGroup*> token_;
};

}  // namespace tandem::inline v0::parallel
