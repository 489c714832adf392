#pragma once

#include <cstddef>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/parallel/data_parallel/structure.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Cuts a tensor along `dim` into one part for each device, and puts it there: parts of ceil(size / devices) elements,
/// as PyTorch cuts, so that 9 rows on 4 devices are 3, 3 and 3. There may thus be fewer parts than devices; no rows
/// are one empty part. A tensor without dimensions goes to every device as it is. Differentiable: the gradient is that
/// of all parts together. Between logical CPU devices nothing is copied.
TANDEM_API std::vector<Tensor> scatter(const Tensor& input, const std::vector<Device>& devices, int dim = 0);

namespace detail {
/// The parts of several tensors, which must be equally many: parts[tensor][device].
TANDEM_API std::vector<std::vector<Tensor>> scatter_all(const std::vector<Tensor>& inputs,
                                                        const std::vector<Device>& devices, int dim);
}  // namespace detail

/// The same for everything that holds tensors (structure.h): one T for each part; plain values are copied to all.
/// Throws ShapeError when its tensors are not of one size along `dim`.
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
