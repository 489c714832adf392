#pragma once

#include <initializer_list>
#include <vector>

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// Options of SGD, with PyTorch's names and defaults.
struct SGDOptions {
  double lr = 1e-3;             // learning rate
  double momentum = 0;          // share of the last step that is kept; 0 needs no memory
  double dampening = 0;         // share of the gradient that momentum leaves out
  double weight_decay = 0;      // times the parameter, added to the gradient
  bool nesterov = false;        // look ahead along the momentum
  bool maximize = false;        // maximise the loss instead
  bool master_weights = false;  // f32 copies of 16-bit parameters; see Optimizer
};

/// Stochastic gradient descent, with momentum as PyTorch defines it: v = momentum * v + (1 - dampening) * g,
/// p -= lr * v (or lr * (g + momentum * v) with nesterov).
class TANDEM_API SGD : public Optimizer {
 public:
  /// Throws ConfigError for options out of range (nesterov needs momentum > 0 and no dampening).
  explicit SGD(const std::vector<Tensor>& parameters, const SGDOptions& options = {});
  /// Groups with options of their own. Throws ConfigError for an empty group or a parameter in two groups.
  explicit SGD(const std::vector<ParamGroup>& groups, const SGDOptions& options = {});
  /// Groups written out: SGD({{.params = a}, {.params = b, .lr = 0.1}}).
  SGD(std::initializer_list<ParamGroup> groups, const SGDOptions& options = {});

 private:
  void update(const Slice& slice) override;
  SGDOptions options_;  // options that groups do not have
};

}  // namespace tandem::inline v0::optim
