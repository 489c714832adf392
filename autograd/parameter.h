#pragma once

#include <string>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// A trainable tensor of a module: a *slot*. Ops resolve it on entry, so that a replica frame can stand in another
/// tensor; copying it to a Tensor gives a handle to the slot. Move-only, so that weights are not tied by accident.
class TANDEM_API Parameter : public Tensor {
 public:
  Parameter() noexcept = default;
  /// Takes over a floating point leaf (its elements are shared) and asks for its gradient.
  explicit Parameter(Tensor value, bool requires_grad = true);

  Parameter(Parameter&&) noexcept = default;
  /// Throws ConfigError when this one is registered in a module, which with its optimiser and state dict would go on
  /// with the old one. Change the elements instead: copy_() under NoGradGuard. (A module that is assigned as a whole
  /// gives up its old parameters first.)
  Parameter& operator=(Parameter&& other);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

/// Module state that is not trained (running statistics): a slot too, saved with the module. Move-only.
class TANDEM_API Buffer : public Tensor {
 public:
  Buffer() noexcept = default;
  explicit Buffer(Tensor value);

  Buffer(Buffer&&) noexcept = default;
  /// As for Parameter.
  Buffer& operator=(Buffer&& other);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

namespace autograd {

/// The name that messages use; empty for tensors without one.
TANDEM_API std::string parameter_name(const Tensor& tensor);
/// Gives it that name.
TANDEM_API void set_parameter_name(const Tensor& tensor, std::string name);
/// Puts `value` in the place of a slot's elements: same identity, so optimisers and other handles follow. Drops its
/// gradient when shape, dtype or device change.
TANDEM_API void replace_elements(const Tensor& slot, const Tensor& value);

}  // namespace autograd
}  // namespace tandem::inline v0
