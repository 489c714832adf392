#pragma once

#include <algorithm>
#include <cmath>

#include <tandem/core/export.h>
#include <tandem/kernels/elementwise_loss.h>

// The formulas of LossOp and their derivatives, shared by all backends. T is float or double.

namespace tandem::inline v0::kernels {

/// True if the loss depends on x - t alone. Such a loss reads no weights.
TANDEM_HD constexpr bool of_difference(LossOp op) { return op < LossOp::binary; }

/// Calls body.operator()<op, T>() for a LossOp.
template <class T, class Body>
void for_loss(LossOp op, Body&& body) {
  switch (op) {
    case LossOp::squared: return body.template operator()<LossOp::squared, T>();
    case LossOp::absolute: return body.template operator()<LossOp::absolute, T>();
    case LossOp::smooth_l1: return body.template operator()<LossOp::smooth_l1, T>();
    case LossOp::huber: return body.template operator()<LossOp::huber, T>();
    case LossOp::binary: return body.template operator()<LossOp::binary, T>();
    case LossOp::binary_logits: return body.template operator()<LossOp::binary_logits, T>();
  }
}

/// Constants that a formula reads besides the elements.
template <class T>
struct LossFactors {
  T threshold;
  T pos_weight = 1;
};

namespace formula {

/// PyTorch's limits. Without them, an output that is certain and wrong would have an infinite loss and no finite
/// gradient.
inline constexpr double kLeastLog = -100;
inline constexpr double kLeastVariance = 1e-12;

/// log(1 + exp(x)) and log(1 + exp(-x)) without overflow, and without cancellation for large |x|.
template <class T>
struct Softplus {
  T of_x, of_minus_x;
  TANDEM_HD explicit Softplus(T x) {
    const T tail = std::log1p(std::exp(-std::abs(x)));
    of_x = std::max(x, T(0)) + tail;
    of_minus_x = std::max(-x, T(0)) + tail;
  }
};

}  // namespace formula

/// The loss of one element; x and t are as in LossOp.
template <LossOp op, class T>
[[gnu::always_inline]] TANDEM_HD inline T loss(T x, T t, LossFactors<T> by) {
  using enum LossOp;
  const T d = x - t;
  const T size = std::abs(d);
  if constexpr (op == squared) return d * d;
  if constexpr (op == absolute) return size;
  if constexpr (op == smooth_l1)
    return size < by.threshold ? T(0.5) * d * d / by.threshold : size - T(0.5) * by.threshold;
  if constexpr (op == huber) {
    return size <= by.threshold ? T(0.5) * d * d : by.threshold * (size - T(0.5) * by.threshold);
  }
  if constexpr (op == binary) {
    const T least = T(formula::kLeastLog);
    return (t - T(1)) * std::max(std::log1p(-x), least) - t * std::max(std::log(x), least);
  }
  if constexpr (op == binary_logits) {
    const formula::Softplus<T> softplus(x);
    return by.pos_weight * t * softplus.of_minus_x + (T(1) - t) * softplus.of_x;
  }
}

/// The derivative of loss() by x; 0 in the middle of a kink.
template <LossOp op, class T>
[[gnu::always_inline]] TANDEM_HD inline T loss_input_grad(T x, T t, LossFactors<T> by) {
  using enum LossOp;
  const T d = x - t;
  const T sign = d > T(0) ? T(1) : d < T(0) ? T(-1) : d;  // NaN stays NaN
  if constexpr (op == squared) return T(2) * d;
  if constexpr (op == absolute) return sign;
  if constexpr (op == smooth_l1) return std::abs(d) < by.threshold ? d / by.threshold : sign;
  if constexpr (op == huber) return std::abs(d) <= by.threshold ? d : by.threshold * sign;
  if constexpr (op == binary) return d / std::max((T(1) - x) * x, T(formula::kLeastVariance));
  if constexpr (op == binary_logits) {
    const T e = std::exp(-std::abs(x));  // sigmoid(|x|) is 1 / (1 + e), sigmoid(-|x|) is e / (1 + e)
    const T of_x = (x < T(0) ? e : T(1)) / (T(1) + e);
    const T of_minus_x = (x < T(0) ? T(1) : e) / (T(1) + e);
    return (T(1) - t) * of_x - by.pos_weight * t * of_minus_x;
  }
}

/// The derivative of loss() by t.
template <LossOp op, class T>
[[gnu::always_inline]] TANDEM_HD inline T loss_target_grad(T x, T t, LossFactors<T> by) {
  using enum LossOp;
  if constexpr (of_difference(op)) return -loss_input_grad<op>(x, t, by);
  if constexpr (op == binary) {
    const T least = T(formula::kLeastLog);
    return std::max(std::log1p(-x), least) - std::max(std::log(x), least);
  }
  if constexpr (op == binary_logits) {
    const formula::Softplus<T> softplus(x);
    return by.pos_weight * softplus.of_minus_x - softplus.of_x;
  }
}

}  // namespace tandem::inline v0::kernels
