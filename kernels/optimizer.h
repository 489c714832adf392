#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/step_state.h>

// Optimiser steps over `count` dense elements of flat storage: one pass that reads and writes each value once.

namespace tandem::inline v0::kernels {

/// g += weight_decay * p;  with momentum: b = momentum * b + (1 - dampening) * g (b = g at step 1),
/// g = nesterov ? g + momentum * b : b;  p -= lr * g.   Sutskever et al., 2013, as PyTorch writes it.
struct Sgd {
  static constexpr const char* kName = "sgd";
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* momentum_buffer;  // null without momentum
  const StepState* state;
  double momentum, dampening, weight_decay;
  bool nesterov;
};
void run(OnCpu, Context& context, const Sgd& kernel);

/// Kingma and Ba, 2015, with bias correction; weight decay is added to the gradient, or, decoupled (AdamW, Loshchilov
/// and Hutter, 2019), shrinks the parameter by lr * weight_decay first.
struct Adam {
  static constexpr const char* kName = "adam";
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  const StepState* state;
  double beta1, beta2, eps, weight_decay;
  bool decoupled;
};
void run(OnCpu, Context& context, const Adam& kernel);

/// *total (+)= sum of squares, in f64, in a fixed order.
struct SquaredNorm {
  static constexpr const char* kName = "squared_norm";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  std::int64_t count;
  const void* values;
  double* total;
};
void run(OnCpu, Context& context, const SquaredNorm& kernel);

/// values *= min(1, max_norm / (sqrt(*squared_norm) + 1e-6)), as PyTorch's clip_grad_norm_. Zeros stay zero even when
/// the norm is not a number: the gaps of a ParameterStore are never written again.
struct ClipByNorm {
  static constexpr const char* kName = "clip_by_norm";
  DType dtype;
  std::int64_t count;
  void* values;
  const double* squared_norm;
  double max_norm;
};
void run(OnCpu, Context& context, const ClipByNorm& kernel);

}  // namespace tandem::inline v0::kernels
