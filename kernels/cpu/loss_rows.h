#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/kernel.h>

// Element-wise losses of f32, on one thread; the caller divides the work.

namespace tandem::inline v0::kernels::cpu {

/// Neighbouring elements of a loss.
struct LossRow {
  LossOp op;
  std::int64_t count;
  const float* input;
  const float* target;
  const float* weight;      // null for all 1
  const float* pos_weight;  // null for all 1
  float threshold;
};

inline constexpr int kLossLanes = 8;
inline constexpr std::int64_t kLossStretch = 128 * kLossLanes;

// add_losses adds the losses of at most kLossStretch elements to eight sums, in turn. loss_gradients writes
// out (+)= derivative by the input * factor.
TANDEM_FOR_EACH_ISA(void add_losses(const LossRow& row, double (&lanes)[kLossLanes]);
                    void loss_gradients(const LossRow& row, float factor, float* out, Accumulate accumulate);)

}  // namespace tandem::inline v0::kernels::cpu
