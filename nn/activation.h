#pragma once

#include <tandem/autograd/ops.h>
#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// max(x, 0), element by element.
class ReLU : public Module<ReLU> {
 public:
  Tensor forward(const Tensor& x) const { return relu(x); }
};

}  // namespace tandem::inline v0::nn
