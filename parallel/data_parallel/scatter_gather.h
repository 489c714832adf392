#pragma once

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/parallel/structure.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Cuts a tensor along `dim` into one part per device and moves each part to its device. Parts have ceil(size /
/// devices) elements along `dim`, as in PyTorch: 9 rows on 4 devices give 3, 3 and 3. There may thus be fewer parts
/// than devices. Zero rows give one empty part. A scalar goes to every device unchanged. Differentiable: the gradient
/// joins those of all parts. Nothing is copied between logical CPU devices.
TANDEM_API std::vector<Tensor> scatter(const Tensor& input, const std::vector<Device>& devices, int dim = 0);

namespace detail {
/// The parts of several tensors, equally many of each: parts[tensor][device]. Throws ShapeError when tensors differ in
/// size along `dim`.
TANDEM_API std::vector<std::vector<Tensor>> scatter_all(const std::vector<Tensor>& inputs,
                                                        const std::vector<Device>& devices, int dim);
}  // namespace detail

/// Cuts any type that holds tensors (structure.h) into one T per part. Plain values are copied to all parts. Throws
/// ShapeError when tensors differ in size along `dim`.
template <HoldsTensors T>
  requires(!std::derived_from<T, Tensor>)
std::vector<T> scatter(const T& inputs, const std::vector<Device>& devices, int dim = 0) {
  std::vector<Tensor> tensors;
  detail::for_each_tensor(const_cast<T&>(inputs), [&](const Tensor& tensor) { tensors.push_back(tensor); });
  const std::vector<std::vector<Tensor>> cut = detail::scatter_all(tensors, devices, dim);
  std::vector<T> parts(cut.empty() ? devices.size() : cut.front().size(), inputs);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::size_t index = 0;
    detail::for_each_tensor(parts[part], [&](Tensor& tensor) { tensor = cut[index++][part]; });
  }
  return parts;
}

/// Joins the replicas' outputs along `dim` on `target`. Scalars become a vector with one element per replica (a warning
/// says so once). Differentiable: each replica gets its part of the gradient. Throws ShapeError when sizes differ
/// outside `dim`, DTypeError for different dtypes, ConfigError for tensors that only some replicas left undefined. If
/// all did, the result is undefined.
TANDEM_API Tensor gather(const std::vector<Tensor>& outputs, Device target, int dim = 0);

namespace detail {
/// Throws ConfigError: the outputs of two replicas differ in a plain value.
[[noreturn]] TANDEM_API void throw_values_differ();
}  // namespace detail

/// Joins outputs of any type that holds tensors (structure.h). All replicas must have built them alike, with the same
/// plain values (ConfigError).
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
