#pragma once

#include <initializer_list>
#include <vector>

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// Options of RMSprop, with PyTorch's names and defaults.
struct RMSpropOptions {
  double lr = 1e-2;             // learning rate
  double alpha = 0.99;          // decay of the mean of squares
  double eps = 1e-8;            // added to the root in the denominator
  double weight_decay = 0;      // added to the gradient
  double momentum = 0;          // share of the last step that is kept
  bool centered = false;        // divide by the gradient's standard deviation instead of its root mean square
  bool maximize = false;        // maximise the loss instead
  bool master_weights = false;  // f32 copies of 16-bit parameters; see Optimizer
};

/// RMSprop: Tieleman and Hinton, "Lecture 6.5: RMSProp", 2012. The option centered: Graves, "Generating sequences with
/// recurrent neural networks", 2013. eps is added after the root, as in PyTorch.
class TANDEM_API RMSprop : public Optimizer {
 public:
  /// Throws ConfigError for options out of range.
  explicit RMSprop(const std::vector<Tensor>& parameters, const RMSpropOptions& options = {});
  /// Groups with options of their own. Throws ConfigError for an empty group or a parameter in two groups.
  explicit RMSprop(const std::vector<ParamGroup>& groups, const RMSpropOptions& options = {});
  RMSprop(std::initializer_list<ParamGroup> groups, const RMSpropOptions& options = {})
      : RMSprop(std::vector<ParamGroup>(groups), options) {}

 private:
  void update(const Slice& slice) override;
  RMSpropOptions options_;  // options that groups do not have
};

}  // namespace tandem::inline v0::optim
