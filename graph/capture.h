#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/core/function_ref.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::graph {

/// Options of a captured step.
struct CaptureOptions {
  int max_captures = 8;  // captures of different inputs; beyond this number, the least recently used one is dropped
  /// Whether several threads may call the step at once. Each thread then has captures, results and stats of its own,
  /// which a later thread with its id takes over, and its first calls run the function, at the same time as other
  /// threads do. Meant for forward passes. A step that draws random numbers needs a GeneratorScope around the calls of
  /// each thread, with a generator of its own, and throws CaptureError without.
  bool concurrent = false;
  /// Whether an update may be computed inside the product that gives a weight's gradient, with the same bits: the
  /// gradient then is not written to memory and read back. Concerns large f32 weights of linear layers and matrix
  /// products, on CPUs with AVX2, trained by SGD, Adam or AdamW; stats().fused_updates counts them. Inputs of these
  /// layers and gradients of their results are kept until step().
  ///
  /// Where something reads the gradient before the update (grad(), a handle from it, clipping, GradScaler,
  /// skip_nonfinite(), hooks, DistributedDataParallel, a second contribution), or no update comes, the gradient is
  /// computed as usual. After the update it does not exist: grad(), another update, and a backward() without
  /// zero_grad(), also that of another loss, throw AutogradError. So does step() if the layer's input was changed in
  /// place after backward(). ParameterStore::gradients() is undefined for these weights.
  bool fuse_update = false;
};

/// Statistics of a captured step.
struct CaptureStats {
  std::uint64_t recorded = 0;       // number of calls that ran the function
  std::uint64_t replayed = 0;       // number of calls that replayed a recording
  std::uint64_t captures = 0;       // number of finished recordings
  std::size_t launches = 0;         // launches in the last capture
  std::size_t arena_bytes = 0;      // memory of all tensors made by the step, in the last capture
  std::size_t temporary_bytes = 0;  // that memory if nothing were shared
  std::size_t fused_updates = 0;    // weights whose gradient is part of their update, in the last capture
  std::size_t joined_launches = 0;  // element-wise launches that run together with the one before, a piece of their
                                    // elements at a time, in the last capture
  std::size_t gpu_graphs = 0;       // GPU graphs that a replay of the last capture launches; 1: the whole step is one
  std::string last_reason = "";     // reason for the last recording: "first call", or the change that required it
};

/// The part of a captured step that does not depend on the type of its function.
class TANDEM_API StepRunner {
 public:
  /// The function, called with handles of its inputs.
  using Body = core::FunctionRef<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  /// Throws ConfigError unless max_captures >= 1.
  explicit StepRunner(const CaptureOptions& options);
  ~StepRunner();
  StepRunner(StepRunner&&) noexcept;
  StepRunner& operator=(StepRunner&&) noexcept;

  /// Runs one step: `body`, or its recorded launches. The results are valid until the next call. Throws the errors of
  /// CapturedStep::operator().
  std::span<const Tensor> run(std::span<const Tensor* const> inputs, Body body);
  /// See CapturedStep::stats().
  const CaptureStats& stats() const noexcept;
  /// See CapturedStep::inputs().
  std::span<const Tensor> inputs() const noexcept;
  /// See CapturedStep::reset().
  void reset() noexcept;

 private:
  struct Impl;
  struct OfThreads;
  Impl& impl() const;

  std::unique_ptr<Impl> impl_;             // null if threads have their own
  std::unique_ptr<OfThreads> of_threads_;  // null if they have not
};

/// A function of tensors that is recorded and then replayed, see capture().
template <class Function>
class CapturedStep {
 public:
  /// Wraps `function`, see capture(). Throws ConfigError unless max_captures >= 1.
  explicit CapturedStep(Function function, const CaptureOptions& options = {})
      : function_(std::move(function)), runner_(options) {}

  /// Runs one step. The results have no history, and share memory with the results of other calls for the same inputs:
  /// the next such call (of this thread, if several may call) overwrites them, so clone() results to keep them. Throws
  /// CaptureError for operations that cannot be captured, and any exception of the function; the next call then records
  /// from the start.
  template <std::derived_from<Tensor>... Inputs>
  std::invoke_result_t<Function&, decltype(static_cast<Tensor>(std::declval<const Inputs&>()))...> operator()(
      const Inputs&... inputs) {
    using Result = std::invoke_result_t<Function&, decltype(static_cast<Tensor>(inputs))...>;
    const std::array<const Tensor*, sizeof...(Inputs)> list{&static_cast<const Tensor&>(inputs)...};
    const std::span<const Tensor> results = runner_.run(list, [&](std::span<const Tensor> slots) {
      return call<Result>(slots, std::make_index_sequence<sizeof...(Inputs)>());
    });
    if constexpr (std::is_same_v<Result, Tensor>) {
      return results[0];
    } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
      return Result(results.begin(), results.end());
    } else if constexpr (!std::is_void_v<Result>) {
      return unpack<Result>(results, std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }

  /// Statistics: how often the function ran, how often it was replayed, and the content of a replay.
  const CaptureStats& stats() const noexcept { return runner_.stats(); }
  /// The tensors to which the inputs of the last call were copied. A call with these tensors copies nothing.
  std::span<const Tensor> inputs() const noexcept { return runner_.inputs(); }
  /// Runs one step for each batch of a DataLoader, or of another range of tuples of tensors or of structs of two, and
  /// calls `each` with its result. Returns the number of steps.
  ///
  ///     step.run(loader, [&](const Tensor& loss) { mean.add(loss.item()); });
  template <class Batches, class Each>
  std::int64_t run(Batches&& batches, Each&& each) {
    std::int64_t steps = 0;
    for (auto&& batch : batches) {
      each(take(batch));
      ++steps;
    }
    return steps;
  }
  /// Runs one step for each batch, see above. The results are dropped.
  template <class Batches>
  std::int64_t run(Batches&& batches) {
    std::int64_t steps = 0;
    for (auto&& batch : batches) {
      take(batch);
      ++steps;
    }
    return steps;
  }
  /// Drops all recordings, those of other threads at their next call. Needed after a change that cannot be detected,
  /// such as another number inside the function.
  void reset() noexcept { runner_.reset(); }

 private:
  template <class Batch>
  decltype(auto) take(const Batch& batch) {
    if constexpr (requires { std::tuple_size<Batch>::value; }) {
      return std::apply(*this, batch);
    } else {
      const auto& [x, y] = batch;
      return (*this)(x, y);
    }
  }
  template <class Result, std::size_t... i>
  std::vector<Tensor> call([[maybe_unused]] std::span<const Tensor> slots, std::index_sequence<i...>) {
    if constexpr (std::is_void_v<Result>) {
      function_(Tensor(slots[i])...);
      return {};
    } else if constexpr (std::is_same_v<Result, Tensor>) {
      return {function_(Tensor(slots[i])...)};
    } else if constexpr (std::is_same_v<Result, std::vector<Tensor>>) {
      return function_(Tensor(slots[i])...);
    } else {
      return std::apply([](const auto&... results) { return std::vector<Tensor>{results...}; },
                        function_(Tensor(slots[i])...));
    }
  }
  template <class Result, std::size_t... i>
  static Result unpack(std::span<const Tensor> results, std::index_sequence<i...>) {
    return Result{results[i]...};
  }

  Function function_;
  StepRunner runner_;
};

/// Makes a step that costs only its arithmetic. `function` takes Tensors and returns a Tensor, a tuple, pair or vector
/// of Tensors, or nothing. The function may train:
///
///     auto step = graph::capture([&](Tensor x, Tensor y) {
///       optimizer.zero_grad();
///       Tensor loss = nn::cross_entropy(model(x), y);
///       loss.backward();
///       optimizer.step();
///       return loss;
///     });
///     for (auto& [x, y] : loader) mean.add(step(x, y).item());
///
/// The first calls run the function and record its operations. Every call is one step, whether recorded or replayed,
/// with bitwise identical results. After two identical runs in a row (the second or third call), its launches are
/// replayed from then on: without autograd, allocation or dispatch, and with its tensors packed into one block of
/// memory.
///
/// - Inputs are copied to separate memory, so no gradient flows into them (ConfigError if one is required) and the
///   function does not see the caller's tensor. Each combination of shapes, types and devices is recorded separately.
/// - The C++ code of the function runs only during recording. Its numbers are fixed at that time, except those held by
///   an Optimizer, a GradScaler, an LRScheduler, an EMA, a Generator or dropout: these continue as in eager steps and
///   may be changed between steps. A number that differs between two recorded runs is an error.
/// - A recording depends on which parameters have a gradient when the step begins, so gradients may be accumulated over
///   several steps.
/// - train() and eval() are recorded separately. The next call records again if a parameter was moved, frozen or
///   unfrozen, a hook was registered, a generator was reseeded, or a tensor that the function reads was replaced;
///   stats().last_reason gives the reason.
/// - A parallel::DistributedDataParallel may be part of the step, and then talks to the other ranks in each replay.
/// - CaptureError, naming the call, is thrown for: item(), to_vector(), data(), span(), printing, from_data() and all
///   other access to elements on the host; nonzero() and masked_select(), whose shapes depend on values; work on
///   another thread, except that of a DataParallel or a backward pass over several devices; a captured step inside a
///   captured step; a step that never repeats itself. A tensor that each step replaces by one computed from it must
///   instead be written in place.
/// - The replicas of a DataParallel, and the devices of a backward pass, run one after another while the step is
///   recorded, and at the same time in replays.
///
/// For use by one thread at a time, or by several with {.concurrent = true}, unless the step has a DataParallel:
///
///     auto predict = graph::capture([&](Tensor x) { return model(x); }, {.concurrent = true});
///
/// During a replay, no other thread may call a DataParallel of the step.
template <class Function>
CapturedStep<std::decay_t<Function>> capture(Function&& function, const CaptureOptions& options = {}) {
  return CapturedStep<std::decay_t<Function>>(std::forward<Function>(function), options);
}

}  // namespace tandem::inline v0::graph
