#pragma once

#include <tandem/autograd/ops/common.h>
#include <tandem/kernels/norm_formulas.h>

// Internal: what layer_norm and batch_norm share.

namespace tandem::inline v0::autograd {

/// Checks an optional companion of the input x (a weight, a running mean, ...): on x's device, of x's type and of these
/// sizes.
inline void check_part(const char* op, const Tensor& x, const char* what, const Tensor& part, const Shape& sizes) {
  if (!part.defined()) {
    return;
  }
  check<DeviceError>(x.device() == part.device(), "{}input is on {}, {} on {}. Move the input: x.to(\"{}\")",
                     core::MessagePrefix{op}, x.device(), what, part.device(), part.device());
  check<DTypeError>(x.dtype() == part.dtype(), "{}input is {}, {} {}. Convert the input: x.to(DType::{})",
                    core::MessagePrefix{op}, x.dtype(), what, part.dtype(), part.dtype());
  check<ShapeError>(part.shape() == sizes, "{}{} {} does not fit the input {}: expected {}", core::MessagePrefix{op},
                    what, part.shape(), x.shape(), sizes);
}

inline bool needs_gradient(const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

inline View statistics_view(std::int64_t count, Device device) {
  static_assert(sizeof(kernels::NormStatistics) == 2 * sizeof(double));
  return detail::empty_view({count, 2}, DType::f64, device);
}

inline kernels::NormStatistics* statistics_of(const View& view) {
  return static_cast<kernels::NormStatistics*>(view.data());
}

/// Runs a kernel for the gradients of input (0), weight (1) and bias (2) that are asked for.
template <class Kernel>
void launch_gradients(Gradients& g, Kernel kernel) {
  const View grad = detail::contiguous(g.output());
  kernel.grad = grad.data();
  const auto ask_for = [&](std::uint32_t i, void*& data, Accumulate& accumulate) {
    if (g.wants(i)) {
      const Destination to = g.destination(i);
      data = to.view.data();
      accumulate = to.accumulate;
    }
  };
  ask_for(0, kernel.in_grad, kernel.accumulate_in);
  ask_for(1, kernel.weight_grad, kernel.accumulate_weight);
  ask_for(2, kernel.bias_grad, kernel.accumulate_bias);
  kernels::launch(detail::context_of(grad), kernel);
}

}  // namespace tandem::inline v0::autograd
