#include <tandem/nn/utils.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>

namespace tandem::inline v0::nn::utils {

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  check<ConfigError>(!parameters.empty(), "parameters_to_vector: the list of parameters is empty");
  std::vector<Tensor> parts;
  parts.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    parts.push_back(parameter.reshape({-1}));
  }
  return cat(parts);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  std::int64_t total = 0;
  for (const Tensor& parameter : parameters) {
    total += parameter.numel();
  }
  check<ShapeError>(vector.shape() == Shape{total},
                    "vector_to_parameters: the parameters have {} elements together, the vector is {}", total,
                    vector.shape());
  const NoGradGuard no_grad;
  std::int64_t at = 0;
  for (Tensor parameter : parameters) {  // NOLINT(performance-for-range-copy): a handle, to write
    parameter.copy_(vector.narrow(0, at, parameter.numel()).reshape(parameter.shape()));
    at += parameter.numel();
  }
}

}  // namespace tandem::inline v0::nn::utils
