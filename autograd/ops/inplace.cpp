#include <tandem/autograd/ops/common.h>

#include <string>

#include <tandem/autograd/parameter.h>
#include <tandem/tensor/factories.h>

// Ops that overwrite their first operand.

namespace tandem::inline v0 {

using namespace autograd;

namespace autograd {

void check_recordable(const char* op, const Tensor& target) {
  if (target.is_leaf() && target.requires_grad()) [[unlikely]] {
    const std::string name = parameter_name(target);
    fail<AutogradError>("{}: {} {} requires a gradient and is changed in place; do it under NoGradGuard [TDM-E205]", op,
                        name.empty() ? "a leaf" : "parameter '" + name + "'", target.shape());
  }
  const View& view = target.raw();
  check<AutogradError>(
      !view.storage->holds_leaf(),
      "{}: {} shares its elements with a leaf that requires a gradient; change a copy (.clone()), or do "
      "it under NoGradGuard [TDM-E205]",
      op, view.sizes);
  check<AutogradError>(
      view.offset == 0 && (view.is_contiguous() || view.is_channels_last()) &&
          view.storage->bytes() == static_cast<std::size_t>(view.numel()) * item_size(view.dtype),
      "{}: recording a change in place of a view {} is not supported; build the whole with cat() or stack(), or use "
      "NoGradGuard [TDM-E207]",
      op, view.sizes);
}

void take_over(Tensor& target, const Tensor& value) {
  detail::TensorImpl& impl = *target.get();
  detail::copy(impl.view, value.raw());
  impl.view.storage->bump_version();
  impl.view.storage->set_tracked(static_cast<bool>(value.get()->history));
  impl.history = value.get()->history;
  impl.output = value.get()->output;
  impl.history_version = impl.view.storage->version();
}

// The result is stored in the target's dtype, so it must not be of a higher kind.
void check_in_place(const char* op, const Tensor& target, DType result) {
  const bool fits = is_floating_point(target.dtype()) || result == target.dtype() ||
                    (!is_floating_point(result) && target.dtype() != DType::boolean);
  check<DTypeError>(fits,
                    "{}: the result is {} and does not fit into the {} tensor that is changed in place; use the "
                    "op that returns a new tensor",
                    op, result, target.dtype());
  detail::check_writable(op, target.raw());
}

}  // namespace autograd

namespace {

Tensor& binary_in_place(const char* name, Tensor& target, const Tensor& other, PointwiseOp op,
                        Tensor (*recorded)(const Tensor&, const Tensor&)) {
  check_same_device(name, target, other);
  const DType dtype = result_type(target, other);
  check_in_place(name, target, op == PointwiseOp::div ? as_floating(dtype) : dtype);
  const View& out = target.raw();
  check<ShapeError>(broadcast_shapes(out.sizes, other.raw().sizes, name) == out.sizes,
                    "{}: {} does not broadcast to the tensor {} that is changed in place [TDM-E104]", name,
                    other.shape(), out.sizes);
  if (dtype != out.dtype || dtype == DType::boolean) {
    return target.copy_(recorded(target, other));
  }
  if (other.dtype() != dtype) {
    return binary_in_place(name, target, other.to(dtype), op, recorded);
  }
  if (records({&target, &other})) {
    check_recordable(name, target);
    // The op must not save the memory that is overwritten now.
    const bool saves = op == PointwiseOp::mul || op == PointwiseOp::div;
    const Tensor self = saves && other.requires_grad() ? target.clone() : target;
    const Tensor factor = saves && other.raw().storage == out.storage ? other.clone() : other;
    take_over(target, recorded(self, factor));
    return target;
  }
  // Memory that overlaps without being identical is copied first, so it is read before it is written.
  const View& in = other.raw();
  const bool same =
      in.storage == out.storage && in.offset == out.offset && in.strides == out.strides && in.sizes == out.sizes;
  const Tensor apart = in.storage == out.storage && !same ? other.clone() : other;
  detail::pointwise(op, out, {&out, &apart.raw()});
  out.storage->bump_version();
  return target;
}

Tensor& scalar_in_place(const char* name, Tensor& target, Scalar value, PointwiseOp op,
                        Tensor (*recorded)(const Tensor&, Scalar)) {
  const View& out = target.raw();
  check_in_place(name, target, result_type(target, value));
  if (records({&target})) {
    check_recordable(name, target);
    take_over(target, recorded(target, value));
    return target;
  }
  detail::pointwise(op, out, {&out}, {value.value()});
  out.storage->bump_version();
  return target;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other) {
  return binary_in_place("add_", *this, other, PointwiseOp::add,
                         [](const Tensor& a, const Tensor& b) { return a + b; });
}
Tensor& Tensor::sub_(const Tensor& other) {
  return binary_in_place("sub_", *this, other, PointwiseOp::sub,
                         [](const Tensor& a, const Tensor& b) { return a - b; });
}
Tensor& Tensor::mul_(const Tensor& other) {
  return binary_in_place("mul_", *this, other, PointwiseOp::mul,
                         [](const Tensor& a, const Tensor& b) { return a * b; });
}
Tensor& Tensor::div_(const Tensor& other) {
  return binary_in_place("div_", *this, other, PointwiseOp::div,
                         [](const Tensor& a, const Tensor& b) { return a / b; });
}

Tensor& Tensor::add_(Scalar value) {
  return scalar_in_place("add_", *this, value, PointwiseOp::add_scalar,
                         [](const Tensor& a, Scalar b) { return a + b; });
}
Tensor& Tensor::sub_(Scalar value) { return add_(-value); }
Tensor& Tensor::mul_(Scalar value) {
  return scalar_in_place("mul_", *this, value, PointwiseOp::mul_scalar,
                         [](const Tensor& a, Scalar b) { return a * b; });
}

Tensor& Tensor::copy_(const Tensor& source) {
  const View& out = raw();
  detail::check_writable("copy_", out);
  check<ShapeError>(broadcast_shapes(out.sizes, source.shape(), "copy_") == out.sizes,
                    "copy_: {} does not broadcast to {} [TDM-E104]", source.shape(), out.sizes);
  const Tensor apart = source.raw().storage == out.storage ? source.clone() : source;
  if (records({this, &source})) {
    check_recordable("copy_", *this);
    take_over(*this, apart.to(dtype()).to(device()).expand(out.sizes));
    return *this;
  }
  detail::copy(out, apart.raw());
  out.storage->bump_version();
  return *this;
}

namespace {

Tensor& fill_in_place(const char* name, Tensor& target, double value) {
  const View& out = target.raw();
  detail::check_writable(name, out);
  if (records({&target})) {
    check_recordable(name, target);
    take_over(target, full(out.sizes, value, {.dtype = out.dtype, .device = out.device()}));
    return target;
  }
  detail::fill(out, value);
  out.storage->bump_version();
  return target;
}

}  // namespace

Tensor& Tensor::fill_(Scalar value) { return fill_in_place("fill_", *this, value.value()); }
Tensor& Tensor::zero_() { return fill_in_place("zero_", *this, 0); }

namespace {

// target = op(target), computed in separate memory.
template <class Op>
Tensor& replace(const char* name, Tensor& target, bool recorded, Op&& op) {
  if (!recorded) {
    return target.copy_(op(target));
  }
  check_recordable(name, target);
  take_over(target, op(target.clone()));  // the op must not save the memory that is overwritten now
  return target;
}

}  // namespace

Tensor& Tensor::div_(Scalar value) {
  check_in_place("div_", *this, as_floating(dtype()));
  if (is_reduced_floating_point(dtype())) {
    return replace("div_", *this, records({this}), [&](const Tensor& x) { return x / value; });
  }
  return div_(full({}, value.value(), {.dtype = dtype(), .device = device()}));
}

Tensor& Tensor::pow_(Scalar exponent) {
  check_in_place("pow_", *this, result_type(*this, exponent));
  return replace("pow_", *this, records({this}), [&](const Tensor& x) { return x.pow(exponent); });
}

Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  check_in_place("masked_fill_", *this, dtype());
  check<ShapeError>(broadcast_shapes(shape(), mask.shape(), "masked_fill_") == shape(),
                    "masked_fill_: the mask {} does not broadcast to the tensor {} [TDM-E104]", mask.shape(), shape());
  return replace("masked_fill_", *this, records({this}), [&](const Tensor& x) { return x.masked_fill(mask, value); });
}

Tensor& Tensor::scatter_add_(int dim, const Tensor& index, const Tensor& source) {
  check_in_place("scatter_add_", *this, dtype());
  return replace("scatter_add_", *this, records({this, &source}),
                 [&](const Tensor& x) { return x.scatter_add(dim, index, source); });
}

}  // namespace tandem::inline v0
