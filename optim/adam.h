#pragma once

#include <tandem/optim/optimizer.h>

namespace tandem::inline v0::optim {

/// PyTorch's names and defaults; betas one by one.
struct AdamOptions {
  double lr = 1e-3;         // learning rate
  double beta1 = 0.9;       // decay of the mean of gradients
  double beta2 = 0.999;     // decay of the mean of their squares
  double eps = 1e-8;        // added to the root that is divided by
  double weight_decay = 0;  // added to the gradient
};

/// PyTorch's names and defaults; betas one by one.
struct AdamWOptions {
  double lr = 1e-3;            // learning rate
  double beta1 = 0.9;          // decay of the mean of gradients
  double beta2 = 0.999;        // decay of the mean of their squares
  double eps = 1e-8;           // added to the root that is divided by
  double weight_decay = 1e-2;  // decoupled: shrinks the parameter by lr * weight_decay
};

/// Kingma and Ba, "Adam: a method for stochastic optimization", 2015.
class TANDEM_API Adam : public Optimizer {
 public:
  /// Throws ConfigError for options out of range.
  explicit Adam(const std::vector<Tensor>& parameters, const AdamOptions& options = {});

 protected:
  Adam(const char* name, const std::vector<Tensor>& parameters, const AdamOptions& options, bool decoupled);

 private:
  void update(const Slice& slice) override;
  AdamOptions options_;
  bool decoupled_;
};

/// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
class TANDEM_API AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<Tensor>& parameters, const AdamWOptions& options = {});
};

}  // namespace tandem::inline v0::optim
