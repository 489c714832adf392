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

/// How much a captured step keeps.
struct CaptureOptions {
  int max_captures = 8;  // of different inputs; beyond, the one that was not used for longest is forgotten
};

/// What a captured step did so far.
struct CaptureStats {
  std::uint64_t recorded = 0;       // calls that ran the function
  std::uint64_t replayed = 0;       // calls that did not
  std::uint64_t captures = 0;       // how often a recording was finished
  std::size_t launches = 0;         // of the last capture
  std::size_t arena_bytes = 0;      // of the last capture: memory of all tensors that the step makes
  std::size_t temporary_bytes = 0;  // the same without sharing
  bool gpu_graph = false;           // whether the last capture is one graph of a GPU, which replays with one launch
  std::string last_reason = "";     // why recording last began: "first call", or what had changed
};

/// What a captured step does that does not depend on the type of its function.
class TANDEM_API StepRunner {
 public:
  /// The function, for handles of its inputs.
  using Body = core::FunctionRef<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  /// Throws ConfigError unless max_captures >= 1.
  explicit StepRunner(const CaptureOptions& options);
  ~StepRunner();
  StepRunner(StepRunner&&) noexcept;
  StepRunner& operator=(StepRunner&&) noexcept;

  /// One step: `body`, or its recorded launches. The results, valid until the next call. Throws as CapturedStep's call.
  std::span<const Tensor> run(std::span<const Tensor* const> inputs, Body body);
  /// See CapturedStep.
  const CaptureStats& stats() const noexcept;
  /// See CapturedStep.
  std::span<const Tensor> inputs() const noexcept;
  /// See CapturedStep.
  void reset() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A function of tensors that is recorded and then replayed; see capture().
template <class Function>
class CapturedStep {
 public:
  /// See capture(). Throws ConfigError unless max_captures >= 1.
  explicit CapturedStep(Function function, const CaptureOptions& options = {})
      : function_(std::move(function)), runner_(options) {}

  /// One step. The results share memory with those of other calls for the same inputs: the next one overwrites them,
  /// clone() what should stay. They have no history. Throws CaptureError for what cannot be captured, and whatever the
  /// function throws; the next call then begins anew.
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

  /// How often the function ran, how often it was replayed, and what a replay is made of.
  const CaptureStats& stats() const noexcept { return runner_.stats(); }
  /// The places that the inputs of the last call were copied to. What is written there and passed is not copied again.
  std::span<const Tensor> inputs() const noexcept { return runner_.inputs(); }
  /// Forgets all recordings, for changes that cannot be seen from outside: another number in the function, say.
  void reset() noexcept { runner_.reset(); }

 private:
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

/// A step that costs its arithmetic alone. `function` takes Tensors and returns a Tensor, a tuple, pair or vector of
/// them, or nothing; it may train:
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
/// The first calls run the function and record what it does: every call is one step, whether recorded or replayed, and
/// the results are the same to the bit. When two runs in a row did the same (the second or third call), its launches
/// are replayed from then on: without autograd, allocation or dispatch, its tensors packed into one block of memory.
///
/// - Inputs are copied to places of their own, so no gradient flows into them (ConfigError if one is required) and the
///   function does not see the caller's tensor. Each combination of shapes, types and devices is recorded by itself.
/// - The C++ code of the function runs only while it is recorded. Numbers in it are kept as they were, but for what an
///   Optimizer, a GradScaler, an LRScheduler, an EMA, a Generator or dropout hold: these go on as in eager steps, and
///   may be changed between steps. A number that was different in two recorded runs is an error.
/// - Whether parameters have a gradient when the step begins is part of what is recorded: gradients may be accumulated
///   over several steps.
/// - train() and eval() are recorded apart. A parameter that was moved, frozen or thawed, a hook, another seed, or a
///   tensor replaced that the function reads make the next call record again; stats().last_reason says so.
/// - CaptureError, naming the call: item(), to_vector(), data(), span(), printing, from_data() and what else reads or
///   writes elements on the host; nonzero() and masked_select(), whose shapes depend on values; work on another thread;
///   a captured step inside a captured step; a step that does not come to do the same twice. A tensor that is replaced
///   in each step by one computed from it must be written in place instead.
///
/// One thread at a time.
template <class Function>
CapturedStep<std::decay_t<Function>> capture(Function&& function, const CaptureOptions& options = {}) {
  return CapturedStep<std::decay_t<Function>>(std::forward<Function>(function), options);
}

}  // namespace tandem::inline v0::graph
