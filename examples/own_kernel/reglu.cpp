#include "reglu.h"

#include <array>

#include <tandem/extend.h>

#include "reglu_kernel.h"

using namespace tandem;

namespace {

void require_pair(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    throw ShapeError("reglu: a is " + to_string(a.shape()) + " and b is " + to_string(b.shape()) +
                     "; both need one shape");
  }
  if (a.dtype() != b.dtype() || (a.dtype() != DType::f32 && a.dtype() != DType::f64)) {
    throw DTypeError("reglu: both inputs must be f32 or f64");
  }
  if (a.device() != b.device()) {
    throw DeviceError("reglu: a is on " + to_string(a.device()) + " and b on " + to_string(b.device()));
  }
}

// Calls body.operator()<T>() with the type of the elements.
template <class Body>
void for_type(DType dtype, Body&& body) {
  dtype == DType::f32 ? body.template operator()<float>() : body.template operator()<double>();
}

struct ReGluFunction : autograd::Function<ReGluFunction> {
  static Tensor forward(Context& ctx, const Tensor& left, const Tensor& right) {
    const Tensor a = left.contiguous();
    const Tensor b = right.contiguous();
    ctx.save(a, b);
    ctx.set_once_differentiable();
    Tensor out = empty(a.shape(), {.dtype = a.dtype(), .device = a.device()});
    for_type(a.dtype(), [&]<class T>() {
      kernels::launch(kernels::context_for(a.device()), ReGlu<T>{.count = a.numel(),
                                                                 .a = const_data_ptr<T>(a),
                                                                 .b = const_data_ptr<T>(b),
                                                                 .out = mutable_data_ptr<T>(out)});
    });
    return out;
  }

  static std::array<Tensor, 2> backward(Context& ctx, const Tensor& gradient) {
    const auto [a, b] = ctx.saved<2>();
    const Tensor grad = gradient.contiguous();
    std::array grads{empty_like(a), empty_like(b)};
    for_type(a.dtype(), [&]<class T>() {
      kernels::launch(kernels::context_for(a.device()), ReGluGrad<T>{.count = a.numel(),
                                                                     .grad = const_data_ptr<T>(grad),
                                                                     .a = const_data_ptr<T>(a),
                                                                     .b = const_data_ptr<T>(b),
                                                                     .a_grad = mutable_data_ptr<T>(grads[0]),
                                                                     .b_grad = mutable_data_ptr<T>(grads[1])});
    });
    return grads;
  }
};

}  // namespace

Tensor reglu(const Tensor& a, const Tensor& b) {
  require_pair(a, b);
  return ReGluFunction::apply(a, b);
}
