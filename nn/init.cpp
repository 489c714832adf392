#include <tandem/nn/init.h>

#include <algorithm>
#include <cmath>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn::init {

void uniform_(Tensor& tensor, double low, double high) {
  const NoGradGuard no_grad;
  tensor.uniform_(low, high);
}

void kaiming_uniform_(Tensor& weight, double a) {
  check<ShapeError>(weight.dim() >= 2, "kaiming_uniform_: the weight must be [out, in, ...], got {}", weight.shape());
  const std::int64_t fan_in = weight.numel() / std::max<std::int64_t>(weight.size(0), 1);
  const double bound = fan_in > 0 ? std::sqrt(6.0 / ((1 + a * a) * static_cast<double>(fan_in))) : 0.0;
  init::uniform_(weight, -bound, bound);
}

}  // namespace tandem::inline v0::nn::init
