#pragma once

#include <cstdint>

#include <tandem/autograd/node.h>

namespace tandem::inline v0::autograd {

/// A value saved for the backward pass. Only the elements are kept, not the history, so no cycle arises. get() detects
/// a later change of the value.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const detail::View& view) : view_(view), version_(view.storage->version()) {}
  explicit Saved(const Tensor& tensor) : Saved(tensor.raw()) { leaf_ = leaf_of(*tensor.get()); }

  /// The saved value. Throws AutogradError, naming the tensor, the op and both versions, if it was changed in place.
  template <class AnyGradients>
  const detail::View& get(const AnyGradients& gradients) const {
    if (view_.storage->version() != version_) [[unlikely]] {
      throw_changed(gradients.op());
    }
    return view_;
  }

 private:
  [[noreturn]] void throw_changed(const char* op) const;

  detail::View view_;
  std::uint32_t version_ = 0;
  const Leaf* leaf_ = nullptr;  // gives the tensor's name; the node's edge keeps the leaf alive
};

}  // namespace tandem::inline v0::autograd
