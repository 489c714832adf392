#include <tandem/autograd/ops/common.h>

// Copies: to another dtype, another device, dense memory.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor copied(const char* op, const Tensor& x, DType dtype, Device device) {
  const View& in = x.raw();
  View out = detail::empty_view(in.sizes, dtype, device);
  detail::copy(out, in);
  if (!is_floating_point(dtype)) {
    return Tensor(std::move(out));
  }
  return record(op, std::move(out), {&x}, [] {
    return [](Gradients& g) {
      const Destination to = g.destination(0);  // converts and crosses back
      detail::copy(to.view, g.output(), to.accumulate);
    };
  });
}

}  // namespace

Tensor Tensor::to(DType wanted) const { return wanted == dtype() ? *this : copied("to", *this, wanted, device()); }

Tensor Tensor::to(Device wanted) const {
  require_available(wanted);
  return wanted == device() ? *this : copied("to", *this, dtype(), wanted);
}

Tensor Tensor::clone() const { return copied("clone", *this, dtype(), device()); }

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : copied("contiguous", *this, dtype(), device()); }

}  // namespace tandem::inline v0
