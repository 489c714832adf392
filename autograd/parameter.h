#pragma once

#include <string>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// A trainable tensor of a module: a *slot*. Ops resolve a slot on entry, so a replica frame can substitute another
/// tensor. A Tensor copied from a parameter is a handle to the slot. Parameters are move-only, which prevents tying
/// weights by accident.
class TANDEM_API Parameter : public Tensor {
 public:
  Parameter() noexcept = default;
  /// Takes over a floating-point leaf (the elements are shared) and requests its gradient.
  explicit Parameter(Tensor value, bool requires_grad = true);

  Parameter(Parameter&&) noexcept = default;
  /// Throws ConfigError if this parameter is registered in a module: the module, its optimiser and its state dict would
  /// keep the old parameter. Change the elements instead, with copy_() under NoGradGuard. (Assigning a whole module
  /// works, because the module gives up its old parameters first.)
  Parameter& operator=(Parameter&& other);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

/// Module state that is not trained (running statistics): also a slot, and saved with the module. Move-only.
class TANDEM_API Buffer : public Tensor {
 public:
  Buffer() noexcept = default;
  explicit Buffer(Tensor value);

  Buffer(Buffer&&) noexcept = default;
  /// Throws ConfigError if this buffer is registered in a module, as for Parameter.
  Buffer& operator=(Buffer&& other);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

namespace autograd {

/// The tensor's name in messages; empty for unnamed tensors.
TANDEM_API std::string parameter_name(const Tensor& tensor);
/// Sets the tensor's name in messages.
TANDEM_API void set_parameter_name(const Tensor& tensor, std::string name);
/// Replaces the elements of a slot by those of `value`. The slot keeps its identity, so optimisers and other handles
/// follow. Drops the gradient if shape, dtype or device change.
TANDEM_API void replace_elements(const Tensor& slot, const Tensor& value);

}  // namespace autograd
}  // namespace tandem::inline v0
