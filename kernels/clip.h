#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

// Norms and limits of gradients, over `count` dense elements of flat storage.

namespace tandem::inline v0::kernels {

/// *total (+)= sum of squares. The sum is taken in f64 and in a fixed order.
struct SquaredNorm {
  static constexpr const char* kName = "squared_norm";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  std::int64_t count;
  const void* values;
  double* total;
};
void run(OnCpu, Context& context, const SquaredNorm& kernel);
void run(OnCuda, Context& context, const SquaredNorm& kernel);

/// *total (+)= sum of |value|^power. The sum is taken in f64 and in a fixed order. For an infinite power the result is
/// the largest |value|, including the one at *total when it accumulates; a NaN makes the result NaN.
struct PowerNorm {
  static constexpr const char* kName = "power_norm";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  std::int64_t count;
  const void* values;
  double* total;
  double power;
};
void run(OnCpu, Context& context, const PowerNorm& kernel);
void run(OnCuda, Context& context, const PowerNorm& kernel);

/// values *= min(1, max_norm / (*norm + 1e-6)), like PyTorch's clip_grad_norm_. Zeros stay zero even when the norm is
/// not a number, because the gaps of a ParameterStore are never written again.
struct ClipByNorm {
  static constexpr const char* kName = "clip_by_norm";
  DType dtype;
  std::int64_t count;
  void* values;
  const double* norm;
  double max_norm;
};
void run(OnCpu, Context& context, const ClipByNorm& kernel);
void run(OnCuda, Context& context, const ClipByNorm& kernel);

/// values = max(-limit, min(values, limit)); NaN stays.
struct ClipByValue {
  static constexpr const char* kName = "clip_by_value";
  DType dtype;
  std::int64_t count;
  void* values;
  double limit;
};
void run(OnCpu, Context& context, const ClipByValue& kernel);
void run(OnCuda, Context& context, const ClipByValue& kernel);

}  // namespace tandem::inline v0::kernels
