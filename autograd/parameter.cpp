#include <tandem/autograd/parameter.h>

#include <utility>

#include <tandem/autograd/node.h>
#include <tandem/core/check.h>

namespace tandem::inline v0 {

namespace {

// Makes a separate slot on the elements of `value`.
Tensor make_slot(const Tensor& value, const char* what) {
  check<ConfigError>(value.is_leaf(),
                     "{}: expected a plain tensor, got the result of an op; call detach() first [TDM-E311]", what);
  Tensor slot(value.raw());
  slot.unresolved()->is_slot = true;
  return slot;
}

void check_replaceable(const Tensor& slot, const Tensor& other, const char* what) {
  check<ConfigError>(
      !slot.defined() || slot.unresolved()->registrations == 0 || slot.unresolved() == other.unresolved(),
      "{} '{}' {} belongs to a module, which would go on with the old one: it cannot be assigned. Write its "
      "elements instead: copy_() under NoGradGuard",
      what, autograd::parameter_name(slot), slot.defined() ? slot.shape() : Shape());
}

}  // namespace

Parameter& Parameter::operator=(Parameter&& other) {
  check_replaceable(*this, other, "Parameter");
  Tensor::operator=(std::move(other));
  return *this;
}

Buffer& Buffer::operator=(Buffer&& other) {
  check_replaceable(*this, other, "Buffer");
  Tensor::operator=(std::move(other));
  return *this;
}

// NOLINTBEGIN(performance-unnecessary-value-param): values are taken over
Parameter::Parameter(Tensor value, bool requires_grad) : Tensor(make_slot(value, "Parameter")) {
  if (requires_grad) {
    requires_grad_();
  }
}

Buffer::Buffer(Tensor value) : Tensor(make_slot(value, "Buffer")) {}
// NOLINTEND(performance-unnecessary-value-param)

namespace autograd {

namespace {

// The leaf of a parameter, including a frozen one, which may be unfrozen later.
Leaf* any_leaf_of(const detail::TensorImpl& impl) {
  for (detail::History* history : {impl.history.get(), impl.frozen.get()}) {
    if (history != nullptr && history->is_leaf()) {
      return static_cast<Leaf*>(history);
    }
  }
  return nullptr;
}

}  // namespace

std::string parameter_name(const Tensor& tensor) {
  const Leaf* leaf = tensor.defined() ? any_leaf_of(*tensor.unresolved()) : nullptr;
  return leaf != nullptr ? leaf->name : std::string();
}

void set_parameter_name(const Tensor& tensor, std::string name) {
  if (Leaf* leaf = any_leaf_of(*tensor.unresolved()); leaf != nullptr) {
    leaf->name = std::move(name);
  }
}

void replace_elements(const Tensor& slot, const Tensor& value) {
  detail::TensorImpl& impl = *slot.unresolved();
  detail::note_step_change(*impl.view.storage);
  if (Leaf* leaf = any_leaf_of(impl); leaf != nullptr) {
    value.raw().storage->count_as(core::MemoryUse::parameters);
    leaf->move_elements(value.raw());
    leaf->reset();
  } else {
    impl.view = value.raw();
  }
  impl.history_version = impl.view.storage->version();
}

}  // namespace autograd
}  // namespace tandem::inline v0
