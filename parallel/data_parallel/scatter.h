#pragma once

#include <cstddef>
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

}  // namespace tandem::inline v0::parallel
