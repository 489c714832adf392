#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/autograd/pass_listener.h>
#include <tandem/core/spin.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/planned_all_reduce.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/buckets.h>
#include <tandem/parallel/distributed/comm_hook.h>

// Internal: what DistributedDataParallel does in a backward pass.

namespace tandem::inline v0::parallel {

struct DistributedOptions;
class BufferSync;
class JoinState;

/// Averages the gradients of a module's parameters over the ranks while the backward pass that makes them goes on.
///
/// A pass is found out about by the node that each output of the module goes through (attach()), which the engine tells
/// before anything runs. Then it is known which leaves the pass will reach, so that parameters without a gradient are
/// known before anything is sent. A bucket leaves when its last gradient is there and the buckets
/// before it have left: the same order on all ranks. The end of the pass waits for all of them, so that no optimiser
/// sees a gradient of this rank alone.
class Reducer final : public autograd::LeafObserver,
                      public autograd::PassListener,
                      public std::enable_shared_from_this<Reducer> {
 public:
  Reducer(nn::ModuleRef module, ProcessGroup& group, const DistributedOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Throws ConfigError when parameters were frozen, thawed, added or moved since.
  void check_parameters();
  /// `output` of the module, whose backward will be seen. `samples` is how many the module was given, in a Join.
  static Tensor attach(const Tensor& output, std::shared_ptr<Reducer> reducer, std::int64_t samples);
  /// The NoSync that live. Of a pass all of whose outputs were made while there were some the gradients stay local.
  int& local_scopes() noexcept { return local_scopes_; }
  /// Throws ConfigError if there is one.
  void set_comm_hook(CommHook hook);

  /// The Join that it is in, as its wrapper number `index`; null: none.
  void set_join(JoinState* join, std::size_t index);
  /// See set_join().
  JoinState* joins() const noexcept { return join_; }
  /// Throws ConfigError when the group is gone.
  void check_group() const;
  /// See check_group().
  ProcessGroup& group() const;
  /// Ends the group on all ranks.
  void abort(std::string_view reason);
  /// What the others reduce now, without samples of this rank, or with those whose gradients have accumulated here.
  void shadow();
  /// Which parameters have a gradient, as a number; 0: none.
  std::int64_t set_of_gradients() const;
  /// Whether some parameter has one that a backward pass through the wrapper gave and none has reduced.
  bool has_local_gradients() const;
  /// The same of gradients from before wrapping.
  bool has_early_gradients() const;
  /// All gradients that there are, by that factor.
  void scale_gradients(double factor);
  /// Grows when a parameter is written.
  std::uint64_t parameter_versions() const;

 private:
  class OutputNode;
  /// A member with an old gradient, which may come back.
  struct Kept {
    std::size_t member;
    tandem::detail::View gradient;
    std::uint32_t version;
  };

  void begin_pass(const autograd::Node& node, bool synced, std::int64_t samples);
  void refuse_pass(const std::exception& failure, bool synced);
  void refuse_within_hook(const void* pass) const;
  void refuse_in_capture(bool synced);
  void run_hook(std::size_t bucket);
  void finish_hooks();
  void note_samples(std::int64_t samples, bool is_first);
  bool on_gradient(autograd::Leaf& leaf) override;
  void on_pass_begin() override;
  void on_pass_end() override;
  void on_pass_done() override;
  void on_pass_failed(const std::exception& failure) override;

  void check_structure();
  void end_pass();
  void fail_pass(const std::exception& failure);
  std::vector<autograd::Leaf*> leaves_with_hooks() const;
  void run_post_hooks(const std::vector<autograd::Leaf*>& leaves);
  void arm();
  void clear_pass();
  void weigh(std::size_t bucket);
  void mark_ready(std::size_t member);
  void start_ready();
  bool has_new(std::size_t member) const;
  bool is_given(std::size_t member) const;
  tandem::detail::View gradient_of(std::size_t member) const;
  void fill_absent(std::size_t member, bool counts);
  void start(std::size_t bucket);
  void finish_pass();
  void forget_pass() noexcept;
  void agree_on_used();
  [[noreturn]] void fail_unused(const std::vector<std::size_t>& members);

  nn::ModuleRef module_;
  ProcessGroup& group_;  // while it is there: check_group()
  std::shared_ptr<detail::CommQueue> queue_;
  int rank_;
  int size_;
  bool find_unused_;
  Buckets buckets_;
  std::vector<Tensor> frozen_;
  std::vector<Tensor> all_buffers_;
  int local_scopes_ = 0;
  std::uint64_t structure_version_;
  std::vector<PlannedAllReduce> plans_;  // of each bucket; none where one rank is alone
  std::optional<Tensor> used_;           // with find_unused: see agree_on_used()
  std::optional<PlannedAllReduce> agree_;
  std::unique_ptr<BufferSync> buffers_;
  CommHook hook_;
  std::atomic<bool> hook_runs_{false};       // under the lock
  std::optional<Tensor> turn_;               // says nothing; with hook_, it is reduced to compare whose pass this is
  std::optional<PlannedAllReduce> compare_;  // of turn_
  JoinState* join_ = nullptr;
  std::size_t join_index_ = 0;

  // Of the pass that runs. Lanes of several devices call at the same time.
  core::SpinLock lock_;
  std::shared_ptr<Reducer> self_;  // until the engine's last call: the wrapper and the graph may be gone before
  std::atomic<const void*> pass_{nullptr};
  bool synced_ = false;
  static constexpr std::uint64_t kBeforeWrapping = 1;  // as a pass
  std::uint64_t passes_ = kBeforeWrapping;
  std::uint64_t reduced_ = 0;           // the last pass that was
  bool lacks_ = false;                  // gradients, in it or in a local one before
  bool follows_ = false;                // in a Join, this rank's input has ended
  std::vector<std::uint64_t> arrived_;  // of each member, the last pass that gave it a gradient
  std::vector<std::uint64_t> ready_;    // of each member, the last pass in which it was counted below
  std::vector<std::size_t> pending_;    // of each bucket, members that are not ready
  std::vector<Kept> kept_;
  std::size_t started_ = 0;                       // buckets that have left
  std::vector<std::function<void()>> finishers_;  // of the hook
  std::int64_t samples_ = 0;                      // in a Join
  double weight_ = 1;                             // of this rank's gradients
  double factor_ = 1;                             // of their mean
  int buffers_from_ = 0;                          // the rank whose buffers count
};

}  // namespace tandem::inline v0::parallel
