#include <tandem/nn/dropout.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>

namespace tandem::inline v0::nn {

Dropout::Dropout(double p) : p_(p) {
  check<ConfigError>(p >= 0 && p <= 1, "Dropout: the probability must be between 0 and 1, got {}", p);
  describe(fmt::format("p={}", p));
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p_, is_training()); }

}  // namespace tandem::inline v0::nn
