#include <tandem/kernels/cpu/isa/vector_math.h>
#include <tandem/kernels/cpu/loss_rows.h>
#include <tandem/kernels/elementwise_loss_formulas.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// ---- losses that depend on a difference: scalar formulas, which the compiler turns into vectors ----

// Adds losses to the lanes while the next ones are computed, so that memory is never waited for by either.
template <LossOp op>
void add_difference_losses(const LossRow& row, double (&lanes)[kLossLanes]) {
  const float* input = row.input;
  const float* target = row.target;
  const LossFactors<float> by{.threshold = row.threshold};
  double sums[kLossLanes];
#pragma GCC unroll 8
  for (int lane = 0; lane < kLossLanes; ++lane) {
    sums[lane] = lanes[lane];
  }
  std::int64_t i = 0;
  for (; i + kLossLanes <= row.count; i += kLossLanes) {
    float losses[kLossLanes];
#pragma GCC unroll 8
    for (int lane = 0; lane < kLossLanes; ++lane) {
      losses[lane] = loss<op, float>(input[i + lane], target[i + lane], by);
    }
#pragma GCC unroll 8
    for (int lane = 0; lane < kLossLanes; ++lane) {
      sums[lane] += static_cast<double>(losses[lane]);
    }
  }
  for (int lane = 0; i < row.count; ++i, ++lane) {
    sums[lane] += static_cast<double>(loss<op, float>(input[i], target[i], by));
  }
#pragma GCC unroll 8
  for (int lane = 0; lane < kLossLanes; ++lane) {
    lanes[lane] = sums[lane];
  }
}

template <LossOp op, bool kAdd>
void difference_gradients(const LossRow& row, float factor, float* out) {
  const float* input = row.input;
  const float* target = row.target;
  const LossFactors<float> by{.threshold = row.threshold};
  const std::int64_t count = row.count;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = loss_input_grad<op, float>(input[i], target[i], by) * factor;
    out[i] = kAdd ? out[i] + value : value;
  }
}

template <LossOp op>
void difference_gradients(const LossRow& row, float factor, float* out, Accumulate accumulate) {
  accumulate == Accumulate::yes ? difference_gradients<op, true>(row, factor, out)
                                : difference_gradients<op, false>(row, factor, out);
}

// ---- binary losses: vector versions of the formulas in elementwise_loss_formulas.h ----

// An element's values. max() and min() give their second argument where one is NaN.
struct Element {
  Vec x, t, weight, pos_weight;
};

TANDEM_SIMD Vec binary_loss(const Element& of) {
  const Vec least = broadcast(static_cast<float>(formula::kLeastLog));
  return (of.t - broadcast(1)) * max(least, log1p(-of.x)) - of.t * max(least, log(of.x));
}

TANDEM_SIMD Vec binary_gradient(const Element& of) {
  const Vec least = broadcast(static_cast<float>(formula::kLeastVariance));
  return (of.x - of.t) / max(least, (broadcast(1) - of.x) * of.x);
}

TANDEM_SIMD Vec logits_loss(const Element& of) {
  const Vec tail = log1p_below_one(exp_below_one(-magnitude(of.x)));
  const Vec of_x = max(Vec{}, of.x) + tail;
  const Vec of_minus_x = max(Vec{}, -of.x) + tail;
  return of.pos_weight * of.t * of_minus_x + (broadcast(1) - of.t) * of_x;
}

TANDEM_SIMD Vec logits_gradient(const Element& of) {
  const Vec one = broadcast(1);
  const Vec e = exp_below_one(-magnitude(of.x));
  const Vec share = one / (one + e);
  const Vec rest = e / (one + e);
  const Vec of_x = of.x < Vec{} ? rest : share;
  const Vec of_minus_x = of.x < Vec{} ? share : rest;
  return (one - of.t) * of_x - of.pos_weight * of.t * of_minus_x;
}

// Calls write(i, mask, value) for each register along the row, with formula(element) * weight.
template <class Formula, class Write>
TANDEM_SIMD void for_each_element(const LossRow& row, Formula&& formula, Write&& write) {
  for (std::int64_t i = 0; i < row.count; i += kLanes) {
    const Mask mask = first(row.count - i);
    const bool whole = row.count - i >= kLanes;
    const auto at = [&](const float* from)
                        __attribute__((always_inline)) { return whole ? load(from + i) : load(from + i, mask); };
    Element element{at(row.input), at(row.target), broadcast(1), broadcast(1)};
    if (!whole) {
      element.x = first_of(element.x, row.count - i, broadcast(0.5F));
    }
    if (row.weight != nullptr) {
      element.weight = at(row.weight);
    }
    if (row.pos_weight != nullptr) {
      element.pos_weight = at(row.pos_weight);
    }
    write(i, mask, whole, element.weight * formula(element));
  }
}

template <class Formula>
TANDEM_SIMD void write_losses(const LossRow& row, float* losses, Formula&& formula) {
  for_each_element(row, formula, [=](std::int64_t i, Mask mask, bool whole, Vec value) __attribute__((always_inline)) {
    whole ? store(losses + i, value) : store(losses + i, value, mask);
  });
}

template <class Formula>
TANDEM_SIMD void write_gradients(const LossRow& row, float factor, float* out, Accumulate accumulate,
                                 Formula&& formula) {
  const bool keep = accumulate == Accumulate::yes;
  const Vec all = broadcast(factor);
  for_each_element(row, formula, [=](std::int64_t i, Mask mask, bool whole, Vec slope) __attribute__((always_inline)) {
    const Vec value = slope * all;
    if (whole) {
      store(out + i, keep ? load(out + i) + value : value);
    } else {
      store(out + i, keep ? load(out + i, mask) + value : value, mask);
    }
  });
}

}  // namespace

void add_losses(const LossRow& row, double (&lanes)[kLossLanes]) {
  float losses[kLossStretch];
  switch (row.op) {
    case LossOp::squared: return add_difference_losses<LossOp::squared>(row, lanes);
    case LossOp::absolute: return add_difference_losses<LossOp::absolute>(row, lanes);
    case LossOp::smooth_l1: return add_difference_losses<LossOp::smooth_l1>(row, lanes);
    case LossOp::huber: return add_difference_losses<LossOp::huber>(row, lanes);
    case LossOp::binary:
      write_losses(row, losses, [](const Element& of) __attribute__((always_inline)) { return binary_loss(of); });
      break;
    case LossOp::binary_logits:
      write_losses(row, losses, [](const Element& of) __attribute__((always_inline)) { return logits_loss(of); });
      break;
  }
  double sums[kLossLanes];
#pragma GCC unroll 8
  for (int lane = 0; lane < kLossLanes; ++lane) {
    sums[lane] = lanes[lane];
  }
  std::int64_t i = 0;
  for (; i + kLossLanes <= row.count; i += kLossLanes) {
#pragma GCC unroll 8
    for (int lane = 0; lane < kLossLanes; ++lane) {
      sums[lane] += static_cast<double>(losses[i + lane]);
    }
  }
  for (int lane = 0; i < row.count; ++i, ++lane) {
    sums[lane] += static_cast<double>(losses[i]);
  }
#pragma GCC unroll 8
  for (int lane = 0; lane < kLossLanes; ++lane) {
    lanes[lane] = sums[lane];
  }
}

void loss_gradients(const LossRow& row, float factor, float* out, Accumulate accumulate) {
  switch (row.op) {
    case LossOp::squared: return difference_gradients<LossOp::squared>(row, factor, out, accumulate);
    case LossOp::absolute: return difference_gradients<LossOp::absolute>(row, factor, out, accumulate);
    case LossOp::smooth_l1: return difference_gradients<LossOp::smooth_l1>(row, factor, out, accumulate);
    case LossOp::huber: return difference_gradients<LossOp::huber>(row, factor, out, accumulate);
    case LossOp::binary:
      return write_gradients(row, factor, out, accumulate,
                             [](const Element& of) __attribute__((always_inline)) { return binary_gradient(of); });
    case LossOp::binary_logits:
      return write_gradients(row, factor, out, accumulate,
                             [](const Element& of) __attribute__((always_inline)) { return logits_gradient(of); });
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
