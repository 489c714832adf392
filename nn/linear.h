#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Options of a Linear.
struct LinearOptions {
  bool bias = true;                             // whether b is added
  std::optional<Device> device = std::nullopt;  // of its parameters; default: the current device
  DType dtype = DType::f32;                     // of its parameters
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

  Parameter weight;  // [out_features, in_features]
  Parameter bias;    // undefined without bias
};

}  // namespace tandem::inline v0::nn
