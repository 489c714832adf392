#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn::utils {

/// Concatenates the elements of all parameters into one dimension. The result is a copy; differentiable. Throws
/// ConfigError for an empty list, DeviceError for parameters on several devices.
TANDEM_API Tensor parameters_to_vector(const std::vector<Tensor>& parameters);

/// Copies the elements of `vector` to the parameters in order, without recording. Throws ShapeError, and changes
/// nothing, unless `vector` has one dimension and as many elements as the parameters together.
TANDEM_API void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

}  // namespace tandem::inline v0::nn::utils
