#include <tandem/nn/linear.h>

#include <cmath>
#include <memory>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/nn/init.h>
#include <tandem/nn/module_state.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options) {
  check<ConfigError>(in_features >= 0 && out_features >= 0, "Linear: sizes must not be negative, got {} and {}",
                     in_features, out_features);
  live_state().product = std::make_unique<detail::ProductState>(detail::ProductState{.dims = 2});
  const TensorOptions made{.dtype = options.dtype, .device = options.device};
  weight = parameter("weight", empty({out_features, in_features}, made));
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (options.bias) {
    bias = parameter("bias", empty({out_features}, made));
    const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0.0;
    init::uniform_(bias, -bound, bound);
  }
  describe(fmt::format("in_features={}, out_features={}, bias={}", in_features, out_features, options.bias));
}

Tensor Linear::forward(const Tensor& x) const {
  check_registered();
  return linear(x, weight, detail::bias_of(live_state(), bias));
}

Tensor Linear::forward_relu(const Tensor& x) const {
  check_registered();
  return linear_relu(x, weight, detail::bias_of(live_state(), bias));
}

}  // namespace tandem::inline v0::nn
