#pragma once

#include <initializer_list>
#include <vector>

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// Options of Adagrad, with PyTorch's names and defaults.
struct AdagradOptions {
  double lr = 1e-2;                      // learning rate
  double lr_decay = 0;                   // the rate of step t is lr / (1 + (t - 1) * lr_decay)
  double weight_decay = 0;               // added to the gradient
  double initial_accumulator_value = 0;  // initial value of the sums of squares
  double eps = 1e-10;                    // added to the root in the denominator
  bool maximize = false;                 // maximise the loss instead
  bool master_weights = false;           // f32 copies of 16-bit parameters; see Optimizer
};

/// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011.
class TANDEM_API Adagrad : public Optimizer {
 public:
  /// Throws ConfigError for options out of range.
  explicit Adagrad(const std::vector<Tensor>& parameters, const AdagradOptions& options = {});
  /// Groups with options of their own. Throws ConfigError for an empty group or a parameter in two groups.
  explicit Adagrad(const std::vector<ParamGroup>& groups, const AdagradOptions& options = {});
  Adagrad(std::initializer_list<ParamGroup> groups, const AdagradOptions& options = {})
      : Adagrad(std::vector<ParamGroup>(groups), options) {}

 private:
  void update(const Slice& slice) override;
  AdagradOptions options_;  // options that groups do not have
};

}  // namespace tandem::inline v0::optim
