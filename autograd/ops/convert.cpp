#include <tandem/autograd/ops/common.h>
#include <tandem/tensor/cuda_allocator.h>

// Copies to another dtype, to another device, or to dense memory.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor copied(const char* op, const Tensor& x, DType dtype, Device device, bool non_blocking = false) {
  const View& in = x.raw();
  View out = detail::empty_view(in.sizes, dtype, device);
  if (non_blocking) {
    detail::copy_without_waiting(out, in);
  } else {
    detail::copy(out, in);
  }
  if (!is_floating_point(dtype)) {
    return Tensor(std::move(out));
  }
  return record(op, std::move(out), {&x}, [&] {
    return [device = in.device()](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output().to(device));
      } else {
        const Destination to = g.destination(0);  // the copy also converts back and moves back to the input's device
        detail::copy(to.view, g.output(), to.accumulate);
      }
    };
  });
}

}  // namespace

Tensor Tensor::to(DType wanted) const { return wanted == dtype() ? *this : copied("to", *this, wanted, device()); }

Tensor Tensor::to(Device wanted, bool non_blocking) const {
  require_available(wanted);
  return wanted == device() ? *this : copied("to", *this, dtype(), wanted, non_blocking);
}

Tensor Tensor::pin_memory() const {
  check<DeviceError>(device().type == DeviceType::cpu, "pin_memory: the tensor is on {}; only host memory is pinned",
                     device());
  if (is_pinned()) {
    return *this;
  }
  View pinned;
  pinned.storage = detail::allocate_pinned(static_cast<std::size_t>(numel()) * item_size(dtype()));
  pinned.dtype = dtype();
  pinned.sizes = shape();
  pinned.strides = contiguous_strides(shape());
  detail::copy(pinned, raw());
  return Tensor(std::move(pinned));
}

bool Tensor::is_pinned() const {
  return device().type == DeviceType::cpu && numel() > 0 && detail::is_pinned(raw().data());
}

Tensor Tensor::clone() const { return copied("clone", *this, dtype(), device()); }

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : copied("contiguous", *this, dtype(), device()); }

}  // namespace tandem::inline v0
