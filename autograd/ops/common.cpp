#include <tandem/autograd/ops/common.h>

#include <algorithm>

namespace tandem::inline v0::autograd {

void check_same_kind(const char* op, const Tensor& a, const Tensor& b) {
  const View& x = a.raw();
  const View& y = b.raw();
  if (!(x.device() == y.device())) [[unlikely]] {
    fail<DeviceError>(
        "{}expected all tensors to be on the same device, got {} on {} and {} on {}; move one with .to(device)",
        core::MessagePrefix{op}, x.sizes, x.device(), y.sizes, y.device());
  }
  if (x.dtype != y.dtype) [[unlikely]] {
    fail<DTypeError>("{}expected one dtype, got {} {} and {} {}; convert one with .to(DType::{})",
                     core::MessagePrefix{op}, x.dtype, x.sizes, y.dtype, y.sizes,
                     is_floating_point(y.dtype) ? y.dtype : x.dtype);
  }
}

void check_floating(const char* op, const Tensor& x) {
  if (!is_floating_point(x.dtype())) [[unlikely]] {
    fail<DTypeError>("{}needs f32 or f64, got {} {}; convert with .to(DType::f32)", core::MessagePrefix{op}, x.dtype(),
                     x.shape());
  }
}

void pointwise_gradient(Gradients& gradients, std::uint32_t i, PointwiseOp op,
                        std::initializer_list<const View*> inputs, double scalar) {
  if (!gradients.wants(i)) {
    return;
  }
  const Shape& full = gradients.output().sizes;
  const Destination to = gradients.destination(i);
  // An input may be the very gradient that is being accumulated.
  const bool apart =
      std::none_of(inputs.begin(), inputs.end(), [&](const View* input) { return input->storage == to.view.storage; });
  if (apart && to.view.sizes == full) {
    detail::pointwise(op, to.view, inputs, scalar, to.accumulate);
    return;
  }
  const View whole = detail::empty_view(full, to.view.dtype, to.view.device());
  detail::pointwise(op, whole, inputs, scalar);
  detail::sum_to(to.view, whole, to.accumulate);
}

}  // namespace tandem::inline v0::autograd
