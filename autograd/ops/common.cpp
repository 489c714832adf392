#include <tandem/autograd/ops/common.h>

#include <algorithm>

namespace tandem::inline v0::autograd {

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  const View& x = a.raw();
  const View& y = b.raw();
  if (!(x.device() == y.device())) [[unlikely]] {
    fail<DeviceError>(
        "{}expected all tensors to be on the same device, got {} on {} and {} on {}; move one with .to(device) "
        "[TDM-E103]",
        core::MessagePrefix{op}, x.sizes, x.device(), y.sizes, y.device());
  }
}

void check_same_kind(const char* op, const Tensor& a, const Tensor& b) {
  check_same_device(op, a, b);
  const View& x = a.raw();
  const View& y = b.raw();
  if (x.dtype != y.dtype) [[unlikely]] {
    fail<DTypeError>("{}expected one dtype, got {} {} and {} {}; convert one with .to(DType::{}) [TDM-E102]",
                     core::MessagePrefix{op}, x.dtype, x.sizes, y.dtype, y.sizes,
                     is_floating_point(y.dtype) ? y.dtype : x.dtype);
  }
}

void check_floating(const char* op, const Tensor& x) {
  if (!is_floating_point(x.dtype())) [[unlikely]] {
    fail<DTypeError>("{}needs floating point, got {} {}; convert with .to(DType::f32)", core::MessagePrefix{op},
                     x.dtype(), x.shape());
  }
}

namespace {

int kind_of(DType dtype) { return is_floating_point(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; }

}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  if ((a.dim() > 0) != (b.dim() > 0)) {
    const DType whole = a.dim() > 0 ? a.dtype() : b.dtype();
    const DType single = a.dim() > 0 ? b.dtype() : a.dtype();
    if (kind_of(single) <= kind_of(whole)) {
      return whole;
    }
  }
  return promote_types(a.dtype(), b.dtype());
}

DType result_type(const Tensor& a, Scalar b) { return kind_of(b.kind()) <= kind_of(a.dtype()) ? a.dtype() : b.kind(); }

View scalar_view(double value, const View& like) {
  View view = detail::empty_view({}, like.dtype, like.device());
  detail::fill(view, value);
  return view;
}

void pointwise_gradient(Gradients& gradients, std::uint32_t i, PointwiseOp op,
                        std::initializer_list<const View*> inputs, detail::Scalars scalars) {
  if (!gradients.wants(i)) {
    return;
  }
  const Shape& full = gradients.output().sizes;
  const bool is_whole = gradients.input_sizes(i) == full;
  const Destination to =
      gradients.destination(i, is_whole ? gradients.output().memory_format() : MemoryFormat::contiguous);
  // An input may share its storage with the gradient that is being accumulated.
  const bool apart =
      std::none_of(inputs.begin(), inputs.end(), [&](const View* input) { return input->storage == to.view.storage; });
  if (apart && is_whole) {
    detail::pointwise(op, to.view, inputs, scalars, to.accumulate);
    return;
  }
  const View whole = detail::empty_view(full, to.view.dtype, to.view.device());
  detail::pointwise(op, whole, inputs, scalars);
  detail::sum_to(to.view, whole, to.accumulate);
}

}  // namespace tandem::inline v0::autograd
