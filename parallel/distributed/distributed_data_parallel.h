#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/step_times.h>
#include <tandem/nn/module_ref.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/data_parallel/structure.h>
#include <tandem/parallel/distributed/comm_hook.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

class Reducer;

/// What DistributedDataParallel leaves open. Names as in PyTorch.
struct DistributedOptions {
  /// The ranks that train together, which must outlive the wrapper; by default the default group. Null, what a rank
  /// outside of a sub-group gets, is an error.
  std::optional<ProcessGroup*> process_group = std::nullopt;
  /// Everybody's buffers (running statistics) become those of rank 0, at the end of each backward pass.
  bool broadcast_buffers = true;
  /// Everybody begins with the parameters and buffers of rank 0.
  bool init_sync = true;
  /// After how many MiB of gradients a bucket leaves. By default 25 where ranks share memory (threads, and processes of
  /// one host); over Gloo's network what is measured at construction, 1 to 25; else 1 first, then 25.
  std::optional<double> bucket_cap_mb = std::nullopt;
  /// Parameters may be without a gradient, on some ranks or all. Costs a small all-reduce each step.
  bool find_unused_parameters = false;
};

namespace detail {
TANDEM_API std::shared_ptr<Reducer> make_reducer(const nn::ModuleRef& module, const DistributedOptions& options);
/// Whether the pass needs to know how many samples it has, since the wrapper is in a Join.
TANDEM_API bool before_forward(Reducer& reducer);
TANDEM_API std::int64_t count_samples(Reducer& reducer, const std::vector<Shape>& inputs);
/// What a pass outside of a Join has.
inline constexpr std::int64_t kUncounted = -1;
TANDEM_API Tensor attach(const Tensor& output, const std::shared_ptr<Reducer>& reducer, std::int64_t samples);
/// How many NoSync live: forward passes are for reduced gradients where it is 0.
TANDEM_API int& local_scopes(Reducer& reducer) noexcept;
TANDEM_API void set_comm_hook(Reducer& reducer, CommHook hook);

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

template <class M>
class DistributedDataParallel;
namespace detail {
template <class M>
const std::shared_ptr<Reducer>& reducer_of(const DistributedDataParallel<M>& ddp) {
  return ddp.reducer_;
}
}  // namespace detail

/// One module on many ranks, each with its part of the data: backward() averages the gradients over the ranks, while it
/// goes on, so that every rank's optimiser makes the same step. The loop around it stays as it was:
///
///     parallel::DistributedDataParallel ddp(model);
///     nn::cross_entropy(ddp(x), y).backward();
///     adam.step();
///
/// W ranks with a mean loss over b rows each give what one device gives with the W * b rows. All ranks make the same
/// passes in the same order. Hooks of parameters (register_post_accumulate_grad_hook) see the mean over the ranks.
/// Whatever would leave a gradient that is this rank's alone is an error that names the parameter, thrown by
/// backward(), before an optimiser can see it; and an error in one rank's pass ends the group, so that no other rank
/// waits for it. Ranks with unequal inputs are in a Join meanwhile (join.h).
///
/// Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020; semantics of
/// torch.nn.parallel.DistributedDataParallel, but that gradients live in the buckets (gradient_as_bucket_view) and
/// buffers are broadcast after the backward pass, not before the forward pass: evaluation involves no other rank.
template <class M>
class DistributedDataParallel {
 public:
  /// A collective. Refers to `module`, which must live as long. Throws ConfigError, on every rank, when the ranks'
  /// models differ (names, shapes, dtypes, strides, what is trained), when nothing is trained, or when a parameter
  /// is in another wrapper already; and where there is no group.
  explicit DistributedDataParallel(M& module, const DistributedOptions& options = {})
      : module_(&module), reducer_(detail::make_reducer(module, options)) {}

  /// The wrapped module, as what it is: ddp.module().fc1. Its own calls are for evaluation: backward() through them is
  /// an error.
  M& module() const noexcept { return *module_; }

  /// module(args...). Throws what the module throws, and ConfigError when its parameters were moved, frozen, thawed or
  /// added to since it was wrapped; and in a Join, when it is not clear how many samples the inputs have.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::decay_t<decltype(std::declval<const M&>()(args...))>;
    static_assert(HoldsTensors<Result>,
                  "DistributedDataParallel: the module must return a tensor, or a structure of them, for backward() to "
                  "begin at");
    std::int64_t samples = detail::kUncounted;
    if (detail::before_forward(*reducer_)) {
      std::vector<Shape> shapes;
      (detail::add_shapes(args, shapes), ...);
      samples = detail::count_samples(*reducer_, shapes);
    }
    const PhaseScope timed(Phase::forward);
    Result result = std::as_const(*module_)(args...);
    detail::for_each_tensor(result, [&](Tensor& output) { output = detail::attach(output, reducer_, samples); });
    return result;
  }

  /// While one lives, the gradients of what is computed stay local and add up (the forward pass counts, as in PyTorch);
  /// the first pass after the last of them reduces their sum:
  ///
  ///     {
  ///       const auto local = ddp.no_sync();
  ///       loss(ddp(x1), y1).backward();
  ///     }
  ///     loss(ddp(x2), y2).backward();
  class NoSync {
   public:
    ~NoSync() { --detail::local_scopes(*reducer_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DistributedDataParallel;
    explicit NoSync(std::shared_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {
      ++detail::local_scopes(*reducer_);
    }
    std::shared_ptr<Reducer> reducer_;
  };
  /// See NoSync.
  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_); }

  /// How buckets are reduced, instead of by a mean over the ranks. Once. Throws ConfigError the second time.
  void register_comm_hook(CommHook hook) { detail::set_comm_hook(*reducer_, std::move(hook)); }

 private:
  friend const std::shared_ptr<Reducer>& detail::reducer_of<M>(const DistributedDataParallel& ddp);

  M* module_;
  std::shared_ptr<Reducer> reducer_;
};

}  // namespace tandem::inline v0::parallel
