#pragma once

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/parallel/data_parallel/structure.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Joins what the replicas gave, along `dim`, on `target`. Tensors without dimensions become a vector of as many as
/// there are replicas (and a warning says so, once). Differentiable: each replica's part of the gradient goes back to
/// it. Throws ShapeError when sizes differ outside `dim`, DTypeError, ConfigError for tensors that some replicas left
/// undefined; if all did, the result is undefined.
TANDEM_API Tensor gather(const std::vector<Tensor>& outputs, Device target, int dim = 0);

namespace detail {
/// Throws ConfigError: a plain value in the outputs of two replicas is not the same.
[[noreturn]] TANDEM_API void throw_values_differ();
}  // namespace detail

/// The same for everything that holds tensors (structure.h). All replicas must have built it alike, with the same plain
/// values (ConfigError).
template <HoldsTensors T>
  requires(!std::derived_from<T, Tensor>)
T gather(std::vector<T> outputs, Device target, int dim = 0) {
  std::vector<std::vector<Tensor>> tensors;
  for (T& output : outputs) {
    std::size_t index = 0;
    detail::for_each_leaf(outputs.front(), output, [&]<class Leaf>(const Leaf& first, const Leaf& leaf) {
      if constexpr (std::derived_from<Leaf, Tensor>) {
        if (index == tensors.size()) {
          tensors.emplace_back();
        }
        tensors[index++].push_back(leaf);
      } else if constexpr (std::equality_comparable<Leaf>) {
        if (!(first == leaf)) {
          detail::throw_values_differ();
        }
      }
    });
  }
  T result = std::move(outputs.front());
  std::size_t index = 0;
  detail::for_each_tensor(result, [&](Tensor& tensor) { tensor = gather(tensors[index++], target, dim); });
  return result;
}

}  // namespace tandem::inline v0::parallel
