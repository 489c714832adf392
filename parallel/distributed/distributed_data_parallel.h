#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/core/span.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/distributed/comm_hook.h>
#include <tandem/parallel/structure.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class ParameterParts;
class Reducer;

/// Says what the ranks share out, where otherwise each of them keeps all of it.
enum class Shard : std::uint8_t {
  /// Nothing: every rank keeps all of the state and makes the whole update.
  none,
  /// The optimiser's state and its work (ZeRO, stage 1): backward() gives each rank the mean of its part of the
  /// gradients, step() updates that part of the parameters and gets the other parts from the other ranks. A
  /// reduce-scatter and an all-gather take the place of the all-reduce.
  optimizer,
  /// The gradients, too (ZeRO, stage 2): once they are reduced, a rank gives back the memory of all parts but its own,
  /// in whole pages. On CPUs; on GPUs a ConfigError.
  gradients,
  /// The parameters, too (ZeRO, stage 3): a rank keeps its part. A pass gathers the parameters of a bucket when it uses
  /// them, and gives back the other ranks' parts afterwards; step() sends nothing. Outside of passes a use of a
  /// parameter is a ConfigError, except in a scope of whole_parameters(). On one CPU device; on GPUs a ConfigError.
  parameters
};

/// Options of DistributedDataParallel, with PyTorch's names.
struct DistributedOptions {
  /// The ranks that train together, by default the default group. The group must outlive the wrapper. A rank outside
  /// of a sub-group has null here, which is an error.
  std::optional<ProcessGroup*> process_group = std::nullopt;
  /// At the end of each backward pass all ranks get the buffers (running statistics) of rank 0.
  bool broadcast_buffers = true;
  /// All ranks begin with the parameters and buffers of rank 0.
  bool init_sync = true;
  /// MiB of gradients after which a bucket leaves; 0 gives each gradient a bucket of its own. The default is 25 where
  /// ranks share memory (threads, and processes of one host); over Gloo's network 1 to 25, as measured at construction;
  /// elsewhere 1 first, then 25.
  std::optional<double> bucket_cap_mb = std::nullopt;
  /// Parameters may be without a gradient, on some ranks or on all. Costs a small all-reduce in each step.
  bool find_unused_parameters = false;
  /// See Shard. All ranks then call clip_grad_norm_(), step() and state_dict() of their optimisers, in the same order;
  /// zero_grad() precedes each backward(); gradients cannot be read, and there are no hooks.
  Shard shard = Shard::none;
};

namespace detail {
TANDEM_API std::shared_ptr<Reducer> make_reducer(const nn::ModuleRef& module, const DistributedOptions& options);
/// The samples of a pass outside of a Join.
inline constexpr std::int64_t kUncounted = -1;
/// Checks the wrapper and the thread. Returns the number of samples in `inputs`, which only a Join asks for.
TANDEM_API std::int64_t before_forward(Reducer& reducer, core::FunctionRef<std::vector<Shape>()> inputs);
TANDEM_API Tensor attach(const Tensor& output, const std::shared_ptr<Reducer>& reducer, std::int64_t samples);
/// Begins a NoSync. Returns whether it belongs to a step that this thread records.
TANDEM_API bool begin_local_scope(Reducer& reducer) noexcept;
TANDEM_API void end_local_scope(Reducer& reducer, bool is_recorded) noexcept;
TANDEM_API void set_comm_hook(Reducer& reducer, CommHook hook);
TANDEM_API std::int64_t gradient_bytes(const Reducer& reducer);
TANDEM_API std::int64_t parameter_bytes(const Reducer& reducer);
TANDEM_API std::int64_t peak_parameter_bytes(const Reducer& reducer);

/// A forward pass through the wrapper, which may use parameters of which this rank keeps its part alone.
class TANDEM_API ForwardPass {
 public:
  explicit ForwardPass(Reducer& reducer);
  ~ForwardPass();
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

 private:
  ParameterParts* parts_;  // null if all parameters are here
};

/// The shapes of the tensors in an input.
template <class T>
void add_shapes(const T& input, std::vector<Shape>& shapes) {
  if constexpr (!std::ranges::view<T>) {  // a view of tensors is not looked into
    if constexpr (HoldsTensors<T>) {
      for_each_tensor(const_cast<T&>(input), [&](const Tensor& tensor) {
        if (tensor.defined()) {
          shapes.push_back(tensor.shape());
        }
      });
    }
  }
}
}  // namespace detail

/// While it lives, all parameters of a wrapper are whole on this rank, so that they can be read, written and saved, and
/// the module can be called itself: see DistributedDataParallel::whole_parameters(). What a rank writes counts for its
/// own part, so all ranks write the same.
class TANDEM_API WholeParameters {
 public:
  /// Called by DistributedDataParallel::whole_parameters(). Throws CommError if the ranks do not all call it, and
  /// AutogradError while a pass of another thread uses the parameters.
  explicit WholeParameters(const std::shared_ptr<Reducer>& reducer);
  ~WholeParameters();
  WholeParameters(WholeParameters&& other) noexcept = default;
  WholeParameters& operator=(WholeParameters&&) = delete;
  WholeParameters(const WholeParameters&) = delete;
  WholeParameters& operator=(const WholeParameters&) = delete;

 private:
  std::weak_ptr<Reducer> reducer_;  // the parameters stay whole if the wrapper goes first
};

/// One module on many ranks, each with its part of the data. backward() averages the gradients over the ranks while it
/// runs, so that every rank's optimiser makes the same step. The loop stays that of one device:
///
///     parallel::DistributedDataParallel ddp(model);
///     nn::cross_entropy(ddp(x), y).backward();
///     adam.step();
///
/// W ranks with a mean loss over b rows each give what one device gives with the W * b rows. All ranks make the same
/// passes in the same order. Hooks of parameters (register_post_accumulate_grad_hook) see the mean over the ranks.
/// A pass that would leave a gradient of this rank alone throws in backward(), before an optimiser can see the
/// gradient; the error names the parameter. An error in one rank's pass ends the group, so that no other rank waits for
/// it. Ranks with unequal inputs use a Join (join.h).
///
/// Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020; semantics of
/// torch.nn.parallel.DistributedDataParallel, with two differences: gradients live in the buckets
/// (gradient_as_bucket_view), and buffers are broadcast after the backward pass instead of before the forward pass, so
/// that evaluation involves no other rank.
template <class M>
class DistributedDataParallel {
 public:
  /// A collective. Refers to `module`, which must outlive the wrapper. Throws ConfigError, on every rank, when the
  /// ranks' models differ (names, shapes, dtypes, strides, trained or frozen), when nothing is trained, when a
  /// parameter is in another wrapper already, or when a buffer requires a gradient; and where no group exists.
  explicit DistributedDataParallel(M& module, const DistributedOptions& options = {})
      : module_(&module), reducer_(detail::make_reducer(module, options)) {}

  /// See ModuleRef::parameters().
  std::vector<Tensor> parameters() const { return module_->parameters(); }
  /// See ModuleRef::train().
  void train(bool on = true) { module_->train(on); }
  /// See ModuleRef::eval().
  void eval() { module_->eval(); }
  /// The wrapped module with its own type: ddp.module().fc1. Calling it directly is for evaluation: backward() through
  /// such a call is an error.
  M& module() const noexcept { return *module_; }

  /// module(args...). Throws the module's errors, and ConfigError when its parameters were moved, frozen, thawed or
  /// added to since it was wrapped, or when, in a Join, the inputs do not show how many samples they have.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::decay_t<decltype(std::declval<const M&>()(args...))>;
    static_assert(HoldsTensors<Result>,
                  "DistributedDataParallel: the module must return a tensor, or a structure of them, for backward() to "
                  "begin at");
    const std::int64_t samples = detail::before_forward(*reducer_, [&] {
      std::vector<Shape> shapes;
      (detail::add_shapes(args, shapes), ...);
      return shapes;
    });
    const detail::ForwardPass pass(*reducer_);
    const SpanScope timed(Phase::forward);
    Result result = std::as_const(*module_)(args...);
    detail::for_each_tensor(result, [&](Tensor& output) { output = detail::attach(output, reducer_, samples); });
    return result;
  }

  /// While a NoSync lives, gradients of forward passes through the wrapper stay local and add up (the forward pass
  /// counts, as in PyTorch). The first pass after the last NoSync reduces their sum:
  ///
  ///     {
  ///       const auto local = ddp.no_sync();
  ///       loss(ddp(x1), y1).backward();
  ///     }
  ///     loss(ddp(x2), y2).backward();
  class NoSync {
   public:
    ~NoSync() { detail::end_local_scope(*reducer_, is_recorded_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DistributedDataParallel;
    explicit NoSync(std::shared_ptr<Reducer> reducer)
        : reducer_(std::move(reducer)), is_recorded_(detail::begin_local_scope(*reducer_)) {}
    std::shared_ptr<Reducer> reducer_;
    bool is_recorded_;
  };
  /// See NoSync.
  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_); }

  /// Replaces the mean over the ranks by `hook`. Once: throws ConfigError the second time.
  void register_comm_hook(CommHook hook) { detail::set_comm_hook(*reducer_, std::move(hook)); }

  /// The bytes of memory that the gradients take on this rank now. With Shard::gradients whole pages on CPUs, and after
  /// a backward pass this rank's part.
  std::int64_t gradient_bytes() const { return detail::gradient_bytes(*reducer_); }
  /// The bytes of memory that the trained parameters take on this rank now. With Shard::parameters whole pages, and
  /// between steps this rank's part.
  std::int64_t parameter_bytes() const { return detail::parameter_bytes(*reducer_); }
  /// The most bytes of trained parameters that were on this rank at once since it was wrapped.
  std::int64_t peak_parameter_bytes() const { return detail::peak_parameter_bytes(*reducer_); }

  /// A collective with Shard::parameters; otherwise it does nothing. While the result lives, all parameters are on all
  /// ranks. Throws CommError if the ranks do not all call it.
  ///
  ///     {
  ///       const auto whole = ddp.whole_parameters();
  ///       if (group.rank() == 0) { save(ddp.module(), path); }
  ///     }
  [[nodiscard]] WholeParameters whole_parameters() { return WholeParameters(reducer_); }

  /// Used by Join.
  const std::shared_ptr<Reducer>& reducer() const noexcept { return reducer_; }

 private:
  M* module_;
  std::shared_ptr<Reducer> reducer_;
};

}  // namespace tandem::inline v0::parallel
