#pragma once

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Merges dimensions start_dim to end_dim (inclusive) into one: [batch, 1, 28, 28] becomes [batch, 784].
class TANDEM_API Flatten : public Module<Flatten> {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1);
  Tensor forward(const Tensor& x) const { return x.flatten(start_dim_, end_dim_); }

 private:
  int start_dim_;
  int end_dim_;
};

}  // namespace tandem::inline v0::nn
