#pragma once

#include <memory>

#include <tandem/autograd/ops/common.h>
#include <tandem/core/bad_value.h>

// Internal: helpers that the losses share.

namespace tandem::inline v0::autograd {

/// The names of a loss and its input in messages: {"nll_loss", "log_probs"}.
struct LossNames {
  const char* op;
  const char* input;
};

/// Throws DeviceError unless input and target are on one device.
void check_target_device(LossNames names, const Tensor& input, const Tensor& target);
/// Throws unless `weight` has the input's dtype and device and requires no gradient: losses have no gradient for
/// weights.
void check_loss_weight(LossNames names, const char* what, const Tensor& input, const Tensor& weight);

/// Warns, once, if `input` is the direct result of the op `of`: the loss applies that itself, or wants another.
/// `advice` ends the text.
void warn_if_result_of(const char* of, LossNames names, const Tensor& input, const char* advice);

// Helpers of losses over classes, whose inputs are [classes], [rows, classes] or [rows, classes, ...].

/// The index of the class dimension.
inline int class_dim(const Shape& input) { return input.ndim() == 1 ? 0 : 1; }
/// The sizes of the losses and of class indices.
Shape without_classes(const Shape& input);
/// Throws unless `target` fits `input` as class indices, by dtype, device and shape.
void check_index_target(LossNames names, const Tensor& input, const Tensor& target);
/// A template for errors about a `target` of these sizes: everything except the index that is neither a class nor
/// ignore_index, and its position.
core::BadValue bad_target(LossNames names, const Shape& target, std::int64_t classes, std::int64_t ignore_index);
/// Throws ValueError, filled in from `bad`, for the first index that is neither a class nor ignored. Indices on a GPU
/// are checked by the kernels instead.
void check_indices(const View& indices, const core::BadValue& bad);
/// The dense [classes] weights after all checks; undefined if none are given.
View class_weight(LossNames names, const Tensor& input, const Tensor& weight);

/// One-hot rows [rows, classes] say how much each class counts in the loss of a row: its weight, or 1, for the row's
/// class, and 0 elsewhere and for `ignore_index`.
Tensor weighted_classes(const Tensor& indices, std::int64_t classes, std::int64_t ignore_index, const Tensor& weight,
                        DType dtype);

/// The gradient of a loss's input that the forward pass computed in advance, for a loss whose own gradient is 1.
class PreparedGradient {
 public:
  PreparedGradient() = default;
  /// Allocates dense memory for a gradient like `input`.
  explicit PreparedGradient(const View& input) : view_(detail::empty_view(input.sizes, input.dtype, input.device())) {}

  /// A pointer for a kernel; null if nothing was prepared.
  void* data() const { return data_of(view_); }
  /// Delivers the gradient to input 0, once: a second pass over a retained graph must compute it. Returns false if no
  /// prepared gradient is left.
  bool deliver(Gradients& gradients);

 private:
  View view_;
};

/// A weight saved for the backward pass; takes little space in the usual case without a weight.
class SavedWeight {
 public:
  explicit SavedWeight(const View& weight)
      : saved_(weight.defined() ? std::make_shared<const Saved>(weight) : nullptr) {}
  const void* data(const Gradients& gradients) const { return saved_ ? saved_->get(gradients).data() : nullptr; }
  /// Undefined without a weight.
  Tensor constant(const GradientGraph& gradients) const { return saved_ ? gradients.constant(*saved_) : Tensor(); }

 private:
  std::shared_ptr<const Saved> saved_;
};

}  // namespace tandem::inline v0::autograd
