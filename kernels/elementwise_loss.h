#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels {

/// Losses of an input x against a target t, element by element; d = x - t. The formulas are in
/// elementwise_loss_formulas.h.
enum class LossOp : std::uint8_t {
  squared,        // d^2
  absolute,       // |d|
  smooth_l1,      // d^2 / (2 threshold) where |d| < threshold, else |d| - threshold / 2
  huber,          // d^2 / 2 where |d| <= threshold, else threshold * (|d| - threshold / 2)
  binary,         // -(t log(x) + (1 - t) log(1 - x)), logarithms at least -100
  binary_logits,  // binary of sigmoid(x), where t log(sigmoid(x)) counts pos_weight times
};

/// Losses of `count` dense elements: each one (loss_per_element), or their sum times `scale`. Only the binary losses
/// read the weights. Where can_prepare() allows it, the kernel may also write the gradient of the input for a loss
/// whose gradient is 1.
struct ElementwiseLoss {
  static constexpr const char* kName = "elementwise_loss";
  LossOp op;
  DType dtype;
  bool loss_per_element;
  double scale;
  double threshold = 1;  // > 0
  std::int64_t count;
  const void* input;
  const void* target;
  const void* weight = nullptr;      // [count], factors of the losses; null for all 1
  const void* pos_weight = nullptr;  // [count]; null for all 1
  void* loss;
  void* input_grad = nullptr;  // [count], or null

  /// True if the forward pass should write the gradient: with this many elements, a backward pass that reads them all
  /// again costs more.
  static bool can_prepare(LossOp op, DType dtype, bool loss_per_element, std::int64_t count) {
    return dtype == DType::f32 && !loss_per_element && count >= 16384 && op != LossOp::binary &&
           op != LossOp::binary_logits;
  }
};
void run(OnCpu, Context& context, const ElementwiseLoss& kernel);
void run(OnCuda, Context& context, const ElementwiseLoss& kernel);

/// result (+)= derivative * g * scale. The derivative is the loss's by the input, or by the target (of_target). g has
/// one element in all, or one per element (loss_per_element).
struct ElementwiseLossGrad {
  static constexpr const char* kName = "elementwise_loss_grad";
  LossOp op;
  DType dtype;
  bool loss_per_element;
  bool of_target;
  Accumulate accumulate = Accumulate::no;
  double scale;
  double threshold = 1;
  std::int64_t count;
  const void* input;
  const void* target;
  const void* weight = nullptr;
  const void* pos_weight = nullptr;
  const void* grad;  // null for one element that is 1
  void* result;
};
void run(OnCpu, Context& context, const ElementwiseLossGrad& kernel);
void run(OnCuda, Context& context, const ElementwiseLossGrad& kernel);

/// gradient *= g, for a gradient that a loss's forward pass wrote for g = 1. Does nothing if g is 1.
struct RescaleGradient {
  static constexpr const char* kName = "rescale_gradient";
  DType dtype;
  std::int64_t count;
  const void* grad;  // [1]
  void* gradient;    // [count], dense
};
void run(OnCpu, Context& context, const RescaleGradient& kernel);
void run(OnCuda, Context& context, const RescaleGradient& kernel);

}  // namespace tandem::inline v0::kernels
