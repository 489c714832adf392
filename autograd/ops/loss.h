#pragma once

#include <memory>
#include <optional>

#include <tandem/autograd/ops/common.h>
#include <tandem/core/bad_value.h>

// Internal: what the losses share.

namespace tandem::inline v0::autograd {

/// How messages call a loss and its input: {"nll_loss", "log_probs"}.
struct LossNames {
  const char* op;
  const char* input;
};

/// That input and target are on one device.
void check_target_device(LossNames names, const Tensor& input, const Tensor& target);
/// That `weight` has the input's type and device, and wants no gradient: there is none.
void check_loss_weight(LossNames names, const char* what, const Tensor& input, const Tensor& weight);

// Losses over classes: their inputs are [classes], [rows, classes] or [rows, classes, ...].

/// The dimension of the classes.
inline int class_dim(const Shape& input) { return input.ndim() == 1 ? 0 : 1; }
/// The sizes of the losses, and of class indices.
Shape without_classes(const Shape& input);
/// That `target` fits `input` as class indices by type, device and shape.
void check_index_target(LossNames names, const Tensor& input, const Tensor& target);
/// What is said of an index in a `target` of these sizes that is neither a class nor ignore_index, but for which one.
core::BadValue bad_target(LossNames names, const Shape& target, std::int64_t classes, std::int64_t ignore_index);
/// That each index is a class or ignored, as `bad` has them. Throws ValueError naming the first that is neither, and
/// where it is; not for a GPU, whose kernels look themselves.
void check_indices(const View& indices, const core::BadValue& bad);
/// The dense [classes] weights after their checks, if there are any.
std::optional<View> class_weight(LossNames names, const Tensor& input, const Tensor& weight);

/// For a kernel: null where there is no weight.
inline const void* data_of(const std::optional<View>& weight) { return weight ? weight->data() : nullptr; }

/// The gradient of a loss's input that the forward pass has written for a loss whose own gradient is 1.
class PreparedGradient {
 public:
  PreparedGradient() = default;
  /// Memory for a gradient like `input`, dense.
  explicit PreparedGradient(const View& input) : view_(detail::empty_view(input.sizes, input.dtype, input.device())) {}

  /// For a kernel: null where there is none.
  void* data() const { return view_.defined() ? view_.data() : nullptr; }
  /// Hands it over as input 0's, once: a second pass over a retained graph has to compute it. False: there is none.
  bool deliver(Gradients& gradients, const View& grad);

 private:
  View view_;
};

/// A weight kept for the backward pass; small where there is none, which is usual.
class SavedWeight {
 public:
  explicit SavedWeight(const std::optional<View>& weight)
      : saved_(weight ? std::make_shared<const Saved>(*weight) : nullptr) {}
  const void* data(const Gradients& gradients) const { return saved_ ? saved_->get(gradients).data() : nullptr; }

 private:
  std::shared_ptr<const Saved> saved_;
};

}  // namespace tandem::inline v0::autograd
