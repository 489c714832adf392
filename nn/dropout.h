#pragma once

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// In training, each element becomes zero with probability p and is otherwise scaled by 1 / (1 - p). Evaluation returns
/// x unchanged (Srivastava et al., 2014). Draws come from the current generator.
class TANDEM_API Dropout : public Module<Dropout> {
 public:
  /// Throws ConfigError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const;

 private:
  double p_;
};

}  // namespace tandem::inline v0::nn
