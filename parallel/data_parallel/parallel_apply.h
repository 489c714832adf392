#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/core/function_ref.h>
#include <tandem/parallel/data_parallel/replicate.h>
#include <tandem/parallel/structure.h>
#include <tandem/tensor/frame.h>

namespace tandem::inline v0::parallel {

using core::ReplicaInfo;

/// The replica that the calling thread computes, within forward() or a loss of DataParallel: index, number of replicas,
/// device. Outside of replicas, index 0 of 1 on the current device.
TANDEM_API ReplicaInfo replica() noexcept;

/// The replica that failed when parallel_apply() or DataParallel last threw on this thread; empty if none failed.
TANDEM_API std::optional<ReplicaInfo> last_failure() noexcept;

namespace detail {

/// Calls body(k) for the first `count` replicas, each with its frame, device and random numbers, on the threads of the
/// pool. Waits for all, then rethrows the exception of the lowest replica. tandem's own errors name the replica in
/// their text.
TANDEM_API void run_replicas(Replicas& replicas, std::size_t count, core::FunctionRef<void(std::size_t)> body);
/// Turns a parameter or buffer that a replica returns into the replica's own tensor.
TANDEM_API void leave_frame(Tensor& result);
/// Storage of last_failure() for this thread. Does not change it.
TANDEM_API std::optional<ReplicaInfo>& failed_replica() noexcept;

/// Type of an argument of a replica's call: a value of its own if it holds tensors (for a parameter: a tensor),
/// otherwise a reference.
template <class T>
using Argument = std::conditional_t<std::derived_from<T, Tensor>, Tensor,
                                    std::conditional_t<HoldsTensors<T>, T, std::reference_wrapper<const T>>>;

}  // namespace detail

/// Calls fn(inputs[k]...) as replica k, for all k at once; fn is a module or a function that calls one. Returns the
/// results in order. The thread's grad mode and other thread state apply in the replicas too. With fewer threads than
/// replicas (set_num_threads()) these run one after another, so they must not wait for each other. If replicas throw,
/// all are waited for, and the exception of the lowest index is rethrown; last_failure() names the replica.
template <class Fn, class... Args>
auto parallel_apply(const Fn& fn, const std::vector<std::tuple<Args...>>& inputs, Replicas& replicas) {
  const auto call = [&](const std::tuple<Args...>& arguments) {
    return std::apply(
        [&](const Args&... args) { return fn(static_cast<const std::unwrap_reference_t<Args>&>(args)...); }, arguments);
  };
  using Result = std::decay_t<decltype(call(inputs.front()))>;
  static_assert(!std::is_void_v<Result>, "parallel_apply: the function must return something");
  std::vector<std::optional<Result>> results(inputs.size());
  detail::run_replicas(replicas, inputs.size(), [&](std::size_t k) {
    results[k].emplace(call(inputs[k]));
    if constexpr (HoldsTensors<Result>) {
      detail::for_each_tensor(*results[k], detail::leave_frame);
    }
  });
  std::vector<Result> values;
  values.reserve(results.size());
  for (std::optional<Result>& result : results) {
    values.push_back(std::move(*result));
  }
  return values;
}

}  // namespace tandem::inline v0::parallel
