#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/span.h>
#include <tandem/nn/module.h>
#include <tandem/parallel/data_parallel/parallel_apply.h>
#include <tandem/parallel/data_parallel/replicate.h>
#include <tandem/parallel/data_parallel/scatter_gather.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Options of DataParallel.
struct DataParallelOptions {
  std::optional<Device> output_device = std::nullopt;  // device for the gathered outputs; default: the first device
  int dim = 0;                                         // dimension along which inputs are cut and outputs joined
  bool allow_duplicate_devices = false;                // lets tests do with one GPU
};

namespace detail {

/// Returns `devices`, or all GPUs if it is empty.
TANDEM_API std::vector<Device> devices_or_all_gpus(std::vector<Device> devices);
/// Joins the losses of parts with these numbers of rows into the loss on the whole batch.
TANDEM_API Tensor join_losses(const std::vector<Tensor>& losses, const std::vector<std::int64_t>& rows, Device target,
                              Reduction reduction);

/// From now on `input`, a replica's part of a batch, cannot be changed in place: some parts are the caller's memory and
/// others copies, so only some of the caller's rows would change.
TANDEM_API void make_read_only(Tensor& input);

/// Size along `dim` of the tensors that are cut up, which is the same for all; 0 if there are none.
template <class T>
std::int64_t rows_of(T& part, int dim) {
  std::int64_t rows = 0;
  for_each_tensor(part,
                  [&](const Tensor& tensor) { rows = tensor.defined() && tensor.dim() > 0 ? tensor.size(dim) : rows; });
  return rows;
}

}  // namespace detail

/// Runs one module on many devices in one process. Each batch is cut along its first dimension, replicas compute the
/// parts at the same time, and the outputs are joined. The backward pass sums the gradients of all replicas into the
/// module. The training loop stays the same:
///
///     parallel::DataParallel dp(model, {"cuda:0", "cuda:1"});
///     Tensor loss = nn::cross_entropy(dp(x), y);
///
/// The module lives on the first device; use its own state_dict(). Without devices all
/// GPUs are used. Without GPUs a call is a plain call of the module. Buffers that replica 0 writes (running statistics)
/// are kept; those of other replicas are lost. Calls may be part of a captured step (graph::capture). With a loss on
/// the gathered outputs, or by loss(), results equal those of one device up to rounding. Random draws (dropout) differ
/// between replicas.
///
/// Zhang et al., "Dive into Deep Learning", 13.5; semantics of torch.nn.DataParallel.
template <class M>
class DataParallel {
 public:
  /// Refers to `module`, which must outlive this object and keep its address. Throws ConfigError for a repeated device,
  /// DeviceError for a missing device and for GPUs mixed with CPU devices.
  explicit DataParallel(M& module, std::vector<Device> devices = {}, const DataParallelOptions& options = {})
      : module_(&module), options_(options) {
    devices = detail::devices_or_all_gpus(std::move(devices));
    if (!devices.empty()) {
      replicas_.emplace(module, std::move(devices), options.allow_duplicate_devices);
    }
  }

  /// See ModuleRef::parameters().
  std::vector<Tensor> parameters() const { return module_->parameters(); }
  /// See ModuleRef::train().
  void train(bool on = true) { module_->train(on); }
  /// See ModuleRef::eval().
  void eval() { module_->eval(); }
  /// The wrapped module with its own type: dp.module().fc1.
  M& module() const noexcept { return *module_; }
  /// The devices; empty if calls are plain calls.
  std::vector<Device> devices() const { return replicas_ ? replicas_->devices() : std::vector<Device>(); }
  /// Bytes copied to replicas so far: changed parameters, and buffers. Replays of captured steps are not counted.
  std::int64_t bytes_copied() const noexcept { return replicas_ ? replicas_->bytes_copied() : 0; }

  /// Calls module(args...) on the whole batch. Arguments that hold tensors (structure.h) are cut up, other values go to
  /// all replicas. A struct of tensors must have members() for that. With fewer rows than devices, only as many
  /// replicas compute as there are parts; if no argument holds tensors, all compute; without arguments, only replica 0.
  /// Throws the errors of scatter(), gather() and the module, DeviceError when the module is not on the first device,
  /// ConfigError when a buffer requires a gradient, and AutogradError when the module changes an input in place that
  /// was cut up, before anything is changed.
  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::decay_t<decltype(std::declval<const M&>()(args...))>;
    static_assert(HoldsTensors<Result>,
                  "DataParallel: the module must return a tensor, or a structure of them; parallel_apply() returns "
                  "whatever every replica gave");
    if (!replicas_) {
      const SpanScope timed(Phase::forward);
      return Result(std::as_const(*module_)(args...));
    }
    std::vector<Result> outputs = run(*module_, cut(std::tuple<detail::Argument<Args>...>(args...)));
    const SpanScope timed(Phase::gather);
    if (replicas_->size() == 1) {
      detail::for_each_tensor(outputs.front(),
                              [&](Tensor& output) { output = output.defined() ? output.to(output_device()) : output; });
      return std::move(outputs.front());
    }
    return gather(std::move(outputs), output_device(), options_.dim);
  }

  /// The loss on the whole batch, computed on each replica's device without gathering outputs:
  /// `dp.loss([](const Tensor& out, const Tensor& y) { return nn::cross_entropy(out, y); }, x, y)`.
  /// `loss` returns a scalar for its part of the batch: the mean over rows, which is then weighted by the number of
  /// rows, or the sum (Reduction::sum). The result equals that on one device unless `loss` itself weights rows (class
  /// weights, ignored targets): take the sum then, and divide. `inputs` may be a tuple of arguments.
  template <class Loss, class Inputs, class Targets>
  Tensor loss(const Loss& loss, const Inputs& inputs, const Targets& targets, Reduction reduction = Reduction::mean) {
    const auto of_part = [&](const Inputs& in, const Targets& target) -> Tensor {
      if constexpr (detail::TupleLike<Inputs>) {
        return loss(std::apply(std::as_const(*module_), in), target);
      } else {
        return loss(std::as_const(*module_)(in), target);
      }
    };
    if (!replicas_) {
      const SpanScope timed(Phase::forward);
      return of_part(inputs, targets);
    }
    std::vector<std::tuple<Inputs, Targets>> parts = cut(std::tuple<Inputs, Targets>(inputs, targets));
    std::vector<std::int64_t> rows;
    for (std::tuple<Inputs, Targets>& part : parts) {
      rows.push_back(detail::rows_of(part, options_.dim));
    }
    const std::vector<Tensor> losses = run(of_part, parts);
    const SpanScope timed(Phase::gather);
    return detail::join_losses(losses, rows, output_device(), reduction);
  }

 private:
  Device output_device() const { return options_.output_device.value_or(replicas_->devices().front()); }

  template <class Arguments>
  std::vector<Arguments> cut(const Arguments& arguments) {
    static_assert(!detail::any_lacks_members<Arguments>(),
                  "DataParallel: an argument is a struct with tensors that has no members(), so every replica would "
                  "compute all of its rows. Declare beside it: auto members(Batch& b) { return std::tie(b.x, b.y); }");
    const SpanScope timed(Phase::scatter);
    detail::failed_replica().reset();
    if constexpr (HoldsTensors<Arguments>) {
      std::vector<Arguments> parts = scatter(arguments, replicas_->devices(), options_.dim);
      for (std::size_t i = 0; i < parts.size() && parts.size() > 1; ++i) {
        detail::for_each_tensor(parts[i], detail::make_read_only);
      }
      return parts;
    } else {
      return std::vector<Arguments>(std::tuple_size_v<Arguments> == 0 ? 1 : replicas_->size(), arguments);
    }
  }

  // Runs fn on every part, each in its replica.
  template <class Fn, class Arguments>
  auto run(const Fn& fn, const std::vector<Arguments>& parts) {
    const auto lock = replicas_->lock();
    {
      const SpanScope timed(Phase::replicate);
      replicas_->update(parts.size());
    }
    const SpanScope timed(Phase::forward);
    return parallel_apply(fn, parts, *replicas_);
  }

  M* module_;
  DataParallelOptions options_;
  std::optional<Replicas> replicas_;
};

/// Calls module(inputs) once on several devices, like a DataParallel made for this call. `inputs` may be a tuple of
/// arguments. Throws CaptureError while this thread records a step, which cannot make replicas.
template <class M, class Inputs>
auto data_parallel(M& module, const Inputs& inputs, const std::vector<Device>& devices = {},
                   const DataParallelOptions& options = {}) {
  DataParallel<M> dp(module, devices, options);
  if constexpr (detail::TupleLike<Inputs>) {
    return std::apply(dp, inputs);
  } else {
    return dp(inputs);
  }
}

}  // namespace tandem::inline v0::parallel
