#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <tandem/core/export.h>
#include <tandem/kernels/optimizer.h>

// One element of each optimiser's step, shared by all backends. T is the stored type, C the type it is computed in, and
// g the gradient to go against. The factors are shared by the elements of a step. Inlined by force, so that the loops
// around the formulas vectorise.

namespace tandem::inline v0::kernels::formula {

// Makes the quotient 0 / 0 become 0, even without eps: a parameter that has never had a gradient stays as it is, and so
// do the gaps of a ParameterStore. The root of any other second moment swallows the smallest normal number.
template <class C>
TANDEM_HD C positive(double eps) {
  return std::max(static_cast<C>(eps), std::numeric_limits<C>::min());
}

/// The gradient with the weight decay's part. Without decay nothing is added, because 0 * inf would make NaN of an
/// infinite parameter.
template <class C>
[[gnu::always_inline]] TANDEM_HD inline C decayed(C g, C decay, C param) {
  return decay == C(0) ? g : g + decay * param;
}

template <class C>
struct SgdFactors {
  C lr, decay, keep, take, ahead;
  bool nesterov;
};
template <class C>
TANDEM_HD SgdFactors<C> factors(const Sgd& kernel, const StepState& state) {
  const bool first = state.step == 1;
  const C momentum = static_cast<C>(state.momentum);
  return {.lr = static_cast<C>(state.learning_rate),
          .decay = static_cast<C>(state.weight_decay),
          .keep = first ? C(0) : momentum,
          .take = first ? C(1) : static_cast<C>(1 - kernel.dampening),
          .ahead = momentum,
          .nesterov = kernel.nesterov};
}
template <class T, class C>
[[gnu::always_inline]] TANDEM_HD inline void sgd(const SgdFactors<C>& by, C g, T& param) {
  param = T(param - by.lr * decayed<C>(g, by.decay, param));
}
template <class T, class C>
[[gnu::always_inline]] TANDEM_HD inline void sgd(const SgdFactors<C>& by, C g, T& param, T& buffer) {
  g = decayed<C>(g, by.decay, param);
  buffer = T(by.keep * buffer + by.take * g);
  const C step = by.nesterov ? g + by.ahead * buffer : C(buffer);
  param = T(param - by.lr * step);
}

/// base^exponent. A GPU multiplies: its pow() takes hundreds of instructions.
TANDEM_HD inline double power(double base, std::int64_t exponent) {
#if defined(__CUDA_ARCH__)
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    result = (exponent & 1) != 0 ? result * base : result;
    base *= base;
  }
  return result;
#else
  return std::pow(base, static_cast<double>(exponent));
#endif
}

template <class C>
struct AdamFactors {
  C step_size, root2, beta1, beta2, rest1, rest2, eps, shrink, decay;
};
template <class C>
TANDEM_HD AdamFactors<C> factors(const Adam& kernel, const StepState& state) {
  const double lr = state.learning_rate;
  const bool known = state.powers_step == state.step;
  const double first = known ? state.first_power : power(state.momentum, state.step);
  const double second = known ? state.second_power : power(kernel.beta2, state.step);
  return {.step_size = static_cast<C>(lr / (1 - first)),
          .root2 = static_cast<C>(1 / std::sqrt(1 - second)),
          .beta1 = static_cast<C>(state.momentum),
          .beta2 = static_cast<C>(kernel.beta2),
          .rest1 = static_cast<C>(1 - state.momentum),
          .rest2 = static_cast<C>(1 - kernel.beta2),
          .eps = positive<C>(kernel.eps),
          .shrink = kernel.decoupled ? static_cast<C>(1 - lr * state.weight_decay) : C(1),
          .decay = kernel.decoupled ? C(0) : static_cast<C>(state.weight_decay)};
}
/// m and v are exp_avg and exp_avg_sq; `largest` is max_exp_avg_sq, unused without kLargest.
template <bool kLargest, class T, class C>
[[gnu::always_inline]] TANDEM_HD inline void adam(const AdamFactors<C>& by, C g, T& param, T& m, T& v, T& largest) {
  const C p = param * by.shrink;
  g = decayed<C>(g, by.decay, p);
  m = T(by.beta1 * m + by.rest1 * g);
  v = T(by.beta2 * v + by.rest2 * g * g);
  if constexpr (kLargest) {
    largest = C(v) <= C(largest) ? largest : v;  // a NaN stays
  }
  const C second = C(kLargest ? largest : v);
  param = T(p - by.step_size * m / (std::sqrt(second) * by.root2 + by.eps));
}

template <class C>
struct RmsPropFactors {
  C lr, alpha, rest, eps, decay, momentum;
};
template <class C>
TANDEM_HD RmsPropFactors<C> factors(const RmsProp& kernel, const StepState& state) {
  return {.lr = static_cast<C>(state.learning_rate),
          .alpha = static_cast<C>(kernel.alpha),
          .rest = static_cast<C>(1 - kernel.alpha),
          .eps = positive<C>(kernel.eps),
          .decay = static_cast<C>(state.weight_decay),
          .momentum = static_cast<C>(state.momentum)};
}
/// `mean` and `buffer` are grad_avg and momentum_buffer, unused without kCentered and kMomentum.
template <bool kCentered, bool kMomentum, class T, class C>
[[gnu::always_inline]] TANDEM_HD inline void rms_prop(const RmsPropFactors<C>& by, C g, T& param, T& square, T& mean,
                                                      T& buffer) {
  g = decayed<C>(g, by.decay, param);
  C variance = by.alpha * square + by.rest * g * g;
  square = T(variance);
  if constexpr (kCentered) {
    mean = T(by.alpha * mean + by.rest * g);
    variance -= mean * mean;
    variance = variance < C(0) ? C(0) : variance;  // rounding can make it negative, and its root NaN
  }
  C step = g / (std::sqrt(variance) + by.eps);
  if constexpr (kMomentum) {
    step = by.momentum * buffer + step;
    buffer = T(step);
  }
  param = T(param - by.lr * step);
}

template <class C>
struct AdagradFactors {
  C lr, eps, decay;
};
template <class C>
TANDEM_HD AdagradFactors<C> factors(const Adagrad& kernel, const StepState& state) {
  const auto steps_before = static_cast<double>(state.step - 1);
  return {.lr = static_cast<C>(state.learning_rate / (1 + steps_before * kernel.lr_decay)),
          .eps = positive<C>(kernel.eps),
          .decay = static_cast<C>(state.weight_decay)};
}
template <class T, class C>
[[gnu::always_inline]] TANDEM_HD inline void adagrad(const AdagradFactors<C>& by, C g, T& param, T& sum) {
  g = decayed<C>(g, by.decay, param);
  sum = T(sum + g * g);
  param = T(param - by.lr * g / (std::sqrt(C(sum)) + by.eps));
}

/// The value from which the update of a 16-bit parameter starts: the master, unless other code has changed the
/// parameter.
template <class T>
TANDEM_HD float master_of(float master, T param) {
  return T(master).bits() == param.bits() ? master : static_cast<float>(param);
}

/// Values that the elements of an update share, including the factor of the gradient.
template <class C, class Factors>
struct Update {
  Factors by;
  C gradient;  // factor of the gradient: 1 / scale, negative to go uphill
  bool skip;   // the update is left out
};
template <class C, class Kernel>
TANDEM_HD auto update(const Kernel& kernel, StepState state) {
  double gradient = 1;
  bool skip = false;
  if (state.scale != nullptr) {
    state.step -= static_cast<std::int64_t>(state.scale->skipped);
    gradient = state.scale->inverse;
    skip = state.scale->found_inf != 0;
  }
  return Update<C, decltype(factors<C>(kernel, state))>{factors<C>(kernel, state),
                                                        static_cast<C>(kernel.maximize ? -gradient : gradient), skip};
}

}  // namespace tandem::inline v0::kernels::formula
