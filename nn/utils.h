#pragma once

#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn::utils {

/// The elements of all parameters, one after the other, as one dimension. A copy; differentiable. Throws ConfigError
/// for an empty list, DeviceError when they are on several devices.
TANDEM_API Tensor parameters_to_vector(const std::vector<Tensor>& parameters);

/// Copies the elements of `vector` to the parameters, in that order; without recording. Throws ShapeError unless it has
/// one dimension and as many elements as they have; then nothing is changed.
TANDEM_API void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

}  // namespace tandem::inline v0::nn::utils
