#pragma once

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// PyTorch's names and defaults.
struct SGDOptions {
  double lr = 1e-3;         // learning rate
  double momentum = 0;      // part of the last step that is kept; 0: no memory is needed
  double dampening = 0;     // part of the gradient that momentum leaves out
  double weight_decay = 0;  // times the parameter, added to the gradient
  bool nesterov = false;    // look ahead along the momentum
};

/// Stochastic gradient descent, with momentum as PyTorch defines it: v = momentum * v + (1 - dampening) * g,
/// p -= lr * v (or lr * (g + momentum * v) with nesterov).
class TANDEM_API SGD : public Optimizer {
 public:
  /// Throws ConfigError for options out of range (nesterov needs momentum > 0 and no dampening).
  explicit SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {});

 private:
  void update(const Slice& slice) override;
  SGDOptions options_;
};

}  // namespace tandem::inline v0::optim
