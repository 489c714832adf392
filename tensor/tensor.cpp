#include <tandem/tensor/tensor.h>

#include <functional>
#include <utility>

#include <cmath>
#include <type_traits>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/core/span.h>
#include <tandem/kernels/math.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0 {

namespace detail {

void History::destroy(const History* history) noexcept { history->dispose(); }

void TensorImpl::destroy(const TensorImpl* impl) noexcept {
  for (const core::Ref<History>& history : {std::cref(impl->history), std::cref(impl->frozen)}) {
    if (history && history->is_leaf()) {
      history->tensor_gone();
    }
  }
  delete impl;
}
void* TensorImpl::operator new(std::size_t bytes) { return cpu_allocate(bytes); }
void TensorImpl::operator delete(void* memory, std::size_t bytes) noexcept { cpu_free(memory, bytes); }

}  // namespace detail

void HookHandle::remove() {
  if (auto remove = std::exchange(remove_, nullptr)) {
    remove();
  }
}

Tensor::Tensor(detail::View view) : impl_(new detail::TensorImpl(std::move(view))) {}

void Tensor::throw_undefined() {
  fail<ConfigError>(
      "{}an undefined tensor was used (a default-constructed Tensor, a bias that a layer does not have, or a gradient "
      "that is not there yet) [TDM-E113]",
      core::MessagePrefix{""});
}

std::int64_t Tensor::size(int dim) const {
  check<ShapeError>(this->dim() > 0, "size: a scalar has no dimensions");
  return shape()[wrap_dim(dim, this->dim(), "size")];
}

const void* Tensor::checked_data(DType expected) const {
  detail::note_host_access("data");
  check<DTypeError>(dtype() == expected, "data<{}>: the tensor holds {}; convert with .to(DType::{}) [TDM-E112]",
                    expected, dtype(), expected);
  check<DeviceError>(device().type == DeviceType::cpu,
                     "data: the elements are on {}, where the host cannot read or write them; copy the tensor with "
                     ".to(\"cpu\")",
                     device());
  return raw().data();
}

const void* Tensor::checked_dense(DType expected) const {
  check<ShapeError>(is_contiguous(), "span: the tensor {} with strides {} is not contiguous; call .contiguous() first",
                    shape(), strides());
  return checked_data(expected);
}

void* Tensor::writable(const char* op, const void* first) {
  detail::check_writable(op, raw());
  raw().storage->bump_version();
  return const_cast<void*>(first);
}

double Tensor::item_double() const {
  detail::note_host_access("item");
  check<ShapeError>(numel() == 1,
                    "item: needs exactly one element, the tensor {} has {}; reduce it, or use to_vector() [TDM-E111]",
                    shape(), numel());
  const SpanScope traced({.name = "read", .bytes = static_cast<std::int64_t>(item_size(dtype()))});
  const detail::View host = detail::on_host(raw());
  return core::dispatch_any(dtype(),
                            [&]<class T>() { return static_cast<double>(*static_cast<const T*>(host.data())); });
}

std::int64_t Tensor::item_int(std::int64_t low, std::uint64_t high) const {
  detail::note_host_access("item");
  check<ShapeError>(numel() == 1,
                    "item: needs exactly one element, the tensor {} has {}; reduce it, or use to_vector() [TDM-E111]",
                    shape(), numel());
  const SpanScope traced({.name = "read", .bytes = static_cast<std::int64_t>(item_size(dtype()))});
  const detail::View host = detail::on_host(raw());
  return core::dispatch_any(dtype(), [&]<class T>() {
    const ComputeType<T> value = *static_cast<const T*>(host.data());
    bool fits = true;
    if constexpr (std::is_same_v<T, bool>) {
      return std::int64_t{value};
    } else if constexpr (std::is_integral_v<T>) {
      fits = value >= low && (value < 0 || static_cast<std::uint64_t>(value) <= high);
    } else {
      const double whole = std::trunc(static_cast<double>(value));
      fits = whole >= static_cast<double>(low) && whole < 0x1p63 &&
             (whole < 0 || static_cast<std::uint64_t>(whole) <= high);
    }
    check<ValueError>(fits, "item: {} does not fit into an integer from {} to {}", value, low, high);
    return static_cast<std::int64_t>(value);
  });
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  detail::note_host_access("to_vector");
  const SpanScope traced({.name = "read", .bytes = numel() * static_cast<std::int64_t>(item_size(dtype()))});
  const detail::View dense = detail::contiguous(detail::on_host(raw()));
  std::vector<T> values(static_cast<std::size_t>(numel()));
  core::dispatch_any(dtype(), [&]<class From>() {
    const From* from = static_cast<const From*>(dense.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = kernels::convert<T>(from[i]);
    }
  });
  return values;
}

template TANDEM_API std::vector<float> Tensor::to_vector<float>() const;
template TANDEM_API std::vector<double> Tensor::to_vector<double>() const;
template TANDEM_API std::vector<BFloat16> Tensor::to_vector<BFloat16>() const;
template TANDEM_API std::vector<Float16> Tensor::to_vector<Float16>() const;
template TANDEM_API std::vector<std::int64_t> Tensor::to_vector<std::int64_t>() const;
template TANDEM_API std::vector<std::int32_t> Tensor::to_vector<std::int32_t>() const;
template TANDEM_API std::vector<std::uint8_t> Tensor::to_vector<std::uint8_t>() const;
template TANDEM_API std::vector<bool> Tensor::to_vector<bool>() const;

Tensor Tensor::detach() const {
  Tensor constant(raw());
  constant.get()->detached = true;
  return constant;
}

}  // namespace tandem::inline v0
