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
#include <tandem/parallel/data_parallel/structure.h>
#include <tandem/parallel/replica.h>

namespace tandem::inline v0::parallel {

namespace detail {

/// Calls body(k) for the first `count` replicas, each with its frame, device and random numbers, on a thread of the
/// pool where there is one. All are waited for; then what the first of them threw is thrown again, tandem's errors with
/// the replica in their text.
TANDEM_API void run_replicas(Replicas& replicas, std::size_t count, core::FunctionRef<void(std::size_t)> body);
/// A parameter or buffer that is handed out becomes what it is in this replica.
TANDEM_API void leave_frame(Tensor& result);
/// See last_failure(). Sets nothing.
TANDEM_API std::optional<ReplicaInfo>& failed_replica() noexcept;

/// What a replica is called with: its own copy of what holds tensors (of a parameter: a tensor), the others by
/// reference.
template <class T>
using Argument = std::conditional_t<std::derived_from<T, Tensor>, Tensor,
                                    std::conditional_t<HoldsTensors<T>, T, std::reference_wrapper<const T>>>;

template <class T>
const T& value_of(const T& argument) {
  return argument;
}
template <class T>
const T& value_of(const std::reference_wrapper<const T>& argument) {
  return argument.get();
}

}  // namespace detail

/// fn(inputs[k]...) as replica k, for all k at once; fn is a module or anything that calls it. Returns what each gave,
/// in order. The thread's grad mode and all else that it carries hold in the replicas, too. Replicas may run one after
/// another where there are fewer threads (set_num_threads()), so they must not wait for each other. Exceptions: all
/// replicas are waited for, then that of the lowest index is thrown again; last_failure() says whose it was.
template <class Fn, class... Args>
auto parallel_apply(const Fn& fn, const std::vector<std::tuple<Args...>>& inputs, Replicas& replicas) {
  const auto call = [&](const std::tuple<Args...>& arguments) {
    return std::apply([&](const Args&... args) { return fn(detail::value_of(args)...); }, arguments);
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
