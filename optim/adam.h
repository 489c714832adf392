#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// Options of Adam, with PyTorch's names and defaults.
struct AdamOptions {
  double lr = 1e-3;  // learning rate
  /// Decay rates of the mean of gradients (a group's momentum) and of the mean of their squares.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;            // added to the root in the denominator
  double weight_decay = 0;      // added to the gradient
  bool amsgrad = false;         // divide by the largest second moment so far
  bool maximize = false;        // maximise the loss instead
  bool master_weights = false;  // f32 copies of 16-bit parameters; see Optimizer
};

/// Options of AdamW, with PyTorch's names and defaults.
struct AdamWOptions {
  double lr = 1e-3;  // learning rate
  /// Decay rates of the mean of gradients (a group's momentum) and of the mean of their squares.
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;            // added to the root in the denominator
  double weight_decay = 1e-2;   // decoupled: shrinks the parameter by lr * weight_decay
  bool amsgrad = false;         // divide by the largest second moment so far
  bool maximize = false;        // maximise the loss instead
  bool master_weights = false;  // f32 copies of 16-bit parameters; see Optimizer
};

/// Adam: Kingma and Ba, "Adam: a method for stochastic optimization", 2015. The option amsgrad: Reddi, Kale and Kumar,
/// "On the convergence of Adam and beyond", 2018.
class TANDEM_API Adam : public Optimizer {
 public:
  /// Throws ConfigError for options out of range.
  explicit Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {});
  /// Groups with options of their own. Throws ConfigError for an empty group or a parameter in two groups.
  explicit Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options = {});
  Adam(std::initializer_list<ParamGroup> groups, const AdamOptions& options = {})
      : Adam(std::vector<ParamGroup>(groups), options) {}

 protected:
  Adam(const char* name, const std::vector<ParamGroup>& groups, const AdamOptions& options, bool decoupled);

 private:
  void update(const Slice& slice) override;
  AdamOptions options_;  // options that groups do not have
  bool decoupled_;
};

/// Adam with decoupled weight decay: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
class TANDEM_API AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& options = {});
  AdamW(std::initializer_list<ParamGroup> groups, const AdamWOptions& options = {})
      : AdamW(std::vector<ParamGroup>(groups), options) {}
};

}  // namespace tandem::inline v0::optim
