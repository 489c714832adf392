#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels {

/// Softmax or log-softmax along the middle dimension of a dense [outer, size, inner] tensor. The maximum is subtracted
/// first.
struct Softmax {
  static constexpr const char* kName = "softmax";
  DType dtype;
  bool log;
  std::int64_t outer, size, inner;
  const void* in;
  void* out;
};
void run(OnCpu, Context& context, const Softmax& kernel);
void run(OnCuda, Context& context, const Softmax& kernel);

/// softmax:     in_grad (+)= y * (g - sum(g * y));   log-softmax: in_grad (+)= g - exp(y) * sum(g).
struct SoftmaxGrad {
  static constexpr const char* kName = "softmax_grad";
  DType dtype;
  bool log;
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, size, inner;
  const void* grad;
  const void* out;
  void* in_grad;
};
void run(OnCpu, Context& context, const SoftmaxGrad& kernel);
void run(OnCuda, Context& context, const SoftmaxGrad& kernel);

}  // namespace tandem::inline v0::kernels
