#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/step_state.h>

// Optimiser steps over `count` dense elements of flat storage. One pass reads and writes each value once.
// The learning rate, the step, the momentum (beta1 of Adam), the weight decay and the scale of the gradients are in
// `state`. `maximize` always goes uphill: the gradient counts with the opposite sign.
// Parameter and gradient have `dtype`, and so have the values kept per element. With `master`, the f32 copy of a 16-bit
// parameter, all kept values are f32 and `param` gets the rounded result. If a parameter is not its master's rounding,
// other code has changed it, and the master takes over the new value.

namespace tandem::inline v0::kernels {

/// Smallest number of elements that a CPU updates on several threads. For fewer, the time that two threads save is
/// spent on moving the elements to the caches of the threads that use them next.
inline constexpr std::int64_t kSharedUpdate = 131072;

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
  double dampening;
  bool nesterov;
  bool maximize = false;
  void* master = nullptr;
};
void run(OnCpu, Context& context, const Sgd& kernel);
void run(OnCuda, Context& context, const Sgd& kernel);

/// Kingma and Ba, 2015, with bias correction. Weight decay is added to the gradient; if decoupled (AdamW, Loshchilov
/// and Hutter, 2019), it shrinks the parameter by lr * weight_decay first. With max_exp_avg_sq (AMSGrad; Reddi, Kale
/// and Kumar, 2018) the largest second moment so far replaces the present one.
struct Adam {
  static constexpr const char* kName = "adam";
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  const StepState* state;
  double beta2, eps;
  bool decoupled;
  void* max_exp_avg_sq = nullptr;
  bool maximize = false;
  void* master = nullptr;
};
void run(OnCpu, Context& context, const Adam& kernel);
void run(OnCuda, Context& context, const Adam& kernel);

/// g += weight_decay * p;  s = alpha * s + (1 - alpha) * g^2;  v = s, or, centered, the variance s - m^2 with
/// m = alpha * m + (1 - alpha) * g;  d = g / (sqrt(v) + eps), with momentum b = momentum * b + d and d = b;
/// p -= lr * d.   Tieleman and Hinton, 2012; centered: Graves, 2013; as PyTorch writes it.
struct RmsProp {
  static constexpr const char* kName = "rmsprop";
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* square_avg;
  void* grad_avg;         // null unless centered
  void* momentum_buffer;  // null without momentum
  const StepState* state;
  double alpha, eps;
  bool maximize = false;
  void* master = nullptr;
};
void run(OnCpu, Context& context, const RmsProp& kernel);
void run(OnCuda, Context& context, const RmsProp& kernel);

/// g += weight_decay * p;  s += g^2;  p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps).
/// Duchi, Hazan and Singer, 2011.
struct Adagrad {
  static constexpr const char* kName = "adagrad";
  DType dtype;
  std::int64_t count;
  void* param;
  const void* grad;
  void* sum;
  const StepState* state;
  double lr_decay, eps;
  bool maximize = false;
  void* master = nullptr;
};
void run(OnCpu, Context& context, const Adagrad& kernel);
void run(OnCuda, Context& context, const Adagrad& kernel);

/// average = decay * average + (1 - decay) * values.
struct MovingAverage {
  static constexpr const char* kName = "moving_average";
  DType dtype;
  std::int64_t count;
  void* average;
  const void* values;
  double decay;
};
void run(OnCpu, Context& context, const MovingAverage& kernel);
void run(OnCuda, Context& context, const MovingAverage& kernel);

}  // namespace tandem::inline v0::kernels
