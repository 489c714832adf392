#include <tandem/autograd/ops/common.h>
#include <tandem/tensor/cuda_allocator.h>

// Copies to another dtype, to another device, or to dense memory.

namespace tandem::inline v0 {

using namespace autograd;

namespace {

Tensor copied(const char* op, const Tensor& x, DType dtype, Device device, MemoryFormat format,
              bool non_blocking = false) {
  const View& in = x.raw();
  View out = detail::empty_view(in.sizes, dtype, device, format);
  if (non_blocking) {
    detail::copy_without_waiting(out, in);
  } else {
    detail::copy(out, in);
  }
  if (!is_floating_point(dtype)) {
    return Tensor(std::move(out));
  }
  return record(op, std::move(out), {&x}, [&] {
    return [device = in.device(), format = in.memory_format()](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output().to(device));
      } else {
        // The copy also converts back, and moves back to the input's device.
        const Destination to = g.destination(0, format);
        detail::copy(to.view, g.output(), to.accumulate);
      }
    };
  });
}

}  // namespace

Tensor Tensor::to(DType wanted) const {
  return wanted == dtype() ? *this : copied("to", *this, wanted, device(), raw().memory_format());
}

Tensor Tensor::to(Device wanted, bool non_blocking) const {
  require_available(wanted);
  const bool keeps = wanted.type == DeviceType::cuda;
  return wanted == device() ? *this
                            : copied("to", *this, dtype(), wanted,
                                     keeps ? raw().memory_format() : MemoryFormat::contiguous, non_blocking);
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

Tensor Tensor::clone() const { return copied("clone", *this, dtype(), device(), raw().memory_format()); }

Tensor Tensor::contiguous(MemoryFormat format) const {
  check<ShapeError>(format == MemoryFormat::contiguous || dim() == 4,
                    "contiguous: channels_last is for images [batch, channels, height, width], got {}", shape());
  format = device().type == DeviceType::cuda ? format : MemoryFormat::contiguous;
  if (!raw().is_dense(format)) {
    return copied("contiguous", *this, dtype(), device(), format);
  }
  if (raw().memory_format() == format) {
    return *this;
  }
  return record("contiguous", detail::contiguous(raw(), format), {this}, [] {
    return [](auto& g) {
      if constexpr (is_graph<decltype(g)>) {
        g.give(0, g.output());
      } else {
        g.deliver(0, g.output(), false);
      }
    };
  });
}

}  // namespace tandem::inline v0
