#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

struct LinearOptions {
  bool bias = true;
  std::optional<Device> device = std::nullopt;
  DType dtype = DType::f32;
};

/// y = x W^T + b, with x [..., in_features] and y [..., out_features]. W is [out, in]; both start uniform on
/// +-1/sqrt(in), as in PyTorch.
class TANDEM_API Linear : public Module<Linear> {
 public:
  /// Throws ConfigError for negative sizes.
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) const;
  /// relu(forward(x)) in one pass over the result.
  Tensor forward_relu(const Tensor& x) const;

  Parameter weight;
  Parameter bias;  // undefined without bias
};

}  // namespace tandem::inline v0::nn
