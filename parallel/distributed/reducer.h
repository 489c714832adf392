#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include <tandem/autograd/pass_listener.h>
#include <tandem/core/spin.h>
#include <tandem/parallel/distributed/bucket_exchange.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/parallel/distributed/sharded_update.h>
#include <tandem/parallel/distributed/used_parameters.h>
#include <tandem/parallel/distributed/wrapped_module.h>
#include <tandem/parallel/first_steps.h>
#include <tandem/tensor/recorder.h>

// Internal: the backward passes of a DistributedDataParallel.

namespace tandem::inline v0::parallel {

struct DistributedOptions;
class JoinState;
class ReducerPass;

/// Averages the gradients of a module's parameters over the ranks while the backward pass that makes them runs.
///
/// From backward to the wire: each output of the module goes through a node of the graph
/// (distributed_data_parallel.cpp). Before a pass runs anything, the engine tells these nodes; the first one makes a
/// ReducerPass, which lives until the pass is done or has failed. By then the engine knows which parameters the pass
/// will reach, so a missing gradient is an error, or counts as 0, before anything is sent. on_gradient() tells the
/// ReducerPass of each complete gradient. A full bucket leaves for the group's thread as soon as the buckets before it
/// have left, which is the same order on all ranks, and the backward pass goes on meanwhile.
///
/// The end of the pass waits for all buckets, so no optimiser sees a gradient of this rank alone. Ranks wait for each
/// other there, and in a Join also at the beginning. Several wrappers in one pass end it in the order in which they
/// were made, however deep they lie in the graph: the engine tells PassListeners in the order of their construction.
/// For that reason the Reducer is the listener, and not the ReducerPass.
///
/// A failure on one rank, in the module or anywhere else in the graph, ends the group on all ranks with the failure's
/// text, and the gradients of the pass are forgotten.
///
/// In a captured step the engine runs only while the step is recorded. Each of its notifications is recorded as work of
/// the host, which in a replay drives a ReducerPass of that replay: buckets leave in the same places.
///
/// In a Join the pass asks the JoinState for its weights and gets plain numbers (PassWeights). A rank whose input has
/// ended makes the same exchanges through shadow(). The Reducer knows the JoinState and not the other way round: only
/// the pass knows when the ranks have to talk, and all that a JoinState needs to see is in the Buckets.
class Reducer final : public autograd::LeafObserver,
                      public autograd::PassListener,
                      public std::enable_shared_from_this<Reducer> {
 public:
  /// A collective. Throws ConfigError, on every rank, where the ranks' models or options differ.
  Reducer(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options);
  ~Reducer();

  const GroupLink& link() const noexcept { return link_; }
  Buckets& buckets() noexcept { return buckets_; }
  /// Throws ConfigError when the group is gone, or parameters were frozen, thawed, added or moved since wrapping.
  /// Warns, once, when an optimiser has used gradients that no_sync() keeps local.
  void check_parameters();
  /// check_parameters(), before a forward pass and before its replays. Throws CaptureError while this thread records a
  /// step, if the wrapper cannot be captured.
  void before_forward();
  /// Whether a NoSync lives. Gradients stay local in a pass whose outputs were all made while one lived.
  bool is_local() const { return recorded_local_scopes_ > 0 || is_local_.get(); }
  /// A NoSync begins (1) or ends (-1), outside of a step that is being recorded ...
  void add_local_scopes(int count) noexcept;
  /// ... or within one.
  void add_recorded_local_scopes(int count) noexcept { recorded_local_scopes_ += count; }
  /// See DistributedDataParallel.
  std::int64_t gradient_bytes() const;
  /// See DistributedDataParallel.
  std::int64_t parameter_bytes() const;
  /// See DistributedDataParallel.
  std::int64_t peak_parameter_bytes() const;
  /// Null unless the ranks share out the parameters.
  ParameterParts* parts() noexcept { return sharded_ ? sharded_->parameters() : nullptr; }
  /// Throws ConfigError if the wrapper has a hook, or shares out the updates.
  void set_comm_hook(CommHook hook);

  /// The wrapper is in a Join, as its number `index`, for as long as that lives.
  void set_join(const std::shared_ptr<JoinState>& join, std::size_t index);
  /// Whether the module's forward pass waits for other ranks.
  bool syncs_batch_norm() const { return module_.syncs_batch_norm(); }
  /// See set_join(); null: none.
  JoinState* join() const noexcept { return join_.lock().get(); }
  /// In a Join, on a rank whose input has ended: reduces with the others, without samples of this rank, or with the
  /// samples whose gradients no_sync() left here.
  void shadow();

  /// Throws if no pass with `node`, an output of the module, may begin now. The group stays as it is.
  void check_pass(const autograd::Node& node, bool synced) const;
  /// A pass begins, and `node` is part of it. Call check_pass() first.
  void begin_pass(const autograd::Node& node, bool synced, std::int64_t samples);
  /// Warns, once, where the gradient that comes from this rank's loss, or the loss that the module itself returned, has
  /// NaN: the mean carries it to all ranks. Looks at a CPU only, since a look at another device would wait for it.
  void look_for_nan(const tandem::detail::View& gradient, const tandem::detail::View& loss);
  /// A pass cannot begin on this rank, or has failed. The others would wait for its gradients, or take the next pass
  /// for this one: ends the group if the pass is one of all ranks (`synced`).
  void refuse_pass(const std::exception& failure, bool synced) const;

 private:
  friend class ReducerPass;

  bool on_gradient(autograd::Leaf& leaf) override;
  void on_pass_begin() override;
  void on_pass_end() override;
  void on_pass_done() override;
  void on_pass_failed(const std::exception& failure) override;

  void end_pass();
  void look_at_steps();
  void note_facts();
  void check_can_be_captured() const;
  void record_gradient(tandem::detail::StepRecorder& recorder, std::size_t member);
  void begin_replayed_pass(bool synced);
  void end_replay();
  void fail_replayed_pass(const std::exception& failure);

  GroupLink link_;
  Buckets buckets_;
  std::optional<ShardedUpdate> sharded_;
  BucketExchange exchange_;
  UsedParameters used_;
  WrappedModule module_;
  int local_scopes_ = 0;           // NoSync that live ...
  int recorded_local_scopes_ = 0;  // ... and those of the step that is being recorded
  tandem::detail::WatchedFlag is_local_{false};
  tandem::detail::Watched life_;
  std::atomic<bool> told_of_nan_ = false;
  std::optional<std::uint64_t> versions_after_local_pass_;  // of the parameters; empty after a reduced pass
  bool told_of_drift_ = false;
  std::weak_ptr<JoinState> join_;
  std::size_t join_index_ = 0;
  core::SpinLock lock_;                // for the pass and all that it works on: lanes of several devices call
  std::unique_ptr<ReducerPass> pass_;  // the one that runs
  bool is_replay_ = false;             // it belongs to a replay
  std::optional<FirstSteps> first_steps_;
};

}  // namespace tandem::inline v0::parallel
