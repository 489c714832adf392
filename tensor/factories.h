#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// Options of a factory function: {.dtype = DType::f64, .device = "cpu:1", .requires_grad = true}.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;    // default: chosen by the factory, usually f32
  std::optional<Device> device = std::nullopt;  // default: the thread's current device
  bool requires_grad = false;                   // whether gradients are recorded for the tensor
};

namespace detail {

/// The dtype that PyTorch chooses for a C++ number.
template <class T>
constexpr DType default_dtype = std::floating_point<T>  ? DType::f32
                                : std::same_as<T, bool> ? DType::boolean
                                                        : DType::i64;
// The widest type of the same kind, which keeps all digits for an f64 or i64 tensor.
template <class T>
using Widest = std::conditional_t<std::floating_point<T>, double, std::int64_t>;
template <class T>
Widest<T> widest(T value) {
  if constexpr (std::unsigned_integral<T> && sizeof(T) == 8) {
    if (value >> 63U != 0) {  // too large for i64
      throw_inexact(std::uint64_t{value});
    }
  }
  return static_cast<Widest<T>>(value);
}

template <std::floating_point T>
double exact(T value) {
  return static_cast<double>(value);
}
TANDEM_API Tensor arange(double start, double end, double step, const TensorOptions& options);
/// Throws ShapeError unless `count` is the number of elements in `sizes`.
TANDEM_API void check_count(const char* op, const Shape& sizes, std::size_t count);
TANDEM_API Tensor from_foreign(const char* op, void* data, DType dtype, const Shape& sizes, const Shape& strides,
                               std::function<void(void*)> deleter, const TensorOptions& options);
TANDEM_API Tensor from_memory(const char* op, const void* data, std::size_t count, DType dtype, const Shape& sizes,
                              const TensorOptions& options);
TANDEM_API Tensor from_bools(const std::vector<bool>& values, const Shape& sizes, const TensorOptions& options);

}  // namespace detail

/// A tensor with uninitialised elements.
TANDEM_API Tensor empty(const Shape& sizes, const TensorOptions& options = {});
/// This overload takes sizes in a std::vector. Without it, `empty(sizes)` would call std::empty().
template <class Sizes>
  requires std::convertible_to<const Sizes&, Shape>
Tensor empty(const Sizes& sizes) {
  return empty(static_cast<Shape>(sizes), TensorOptions());
}
/// A tensor of zeros; f32 by default.
TANDEM_API Tensor zeros(const Shape& sizes, const TensorOptions& options = {});
/// A tensor of ones; f32 by default.
TANDEM_API Tensor ones(const Shape& sizes, const TensorOptions& options = {});
/// A tensor with every element equal to `value`. The default dtype follows the kind of `value`: full({2}, 1.0) is f32,
/// full({2}, 1) is i64. Throws DTypeError if an integer dtype cannot hold the value.
TANDEM_API Tensor full(const Shape& sizes, double value, const TensorOptions& options = {});
template <std::integral T>
Tensor full(const Shape& sizes, T value, TensorOptions options = {}) {
  options.dtype = options.dtype.value_or(detail::default_dtype<T>);
  return full(sizes, detail::exact(value), options);
}
/// An uninitialised tensor with the shape, dtype and device of `tensor`.
TANDEM_API Tensor empty_like(const Tensor& tensor);
/// Zeros with the shape, dtype and device of `tensor`.
TANDEM_API Tensor zeros_like(const Tensor& tensor);
/// Ones with the shape, dtype and device of `tensor`.
TANDEM_API Tensor ones_like(const Tensor& tensor);
/// Every element `value`, with the shape, dtype and device of `tensor`.
TANDEM_API Tensor full_like(const Tensor& tensor, double value);
/// Draws uniform on [0, 1), with the shape, dtype and device of `tensor`.
TANDEM_API Tensor rand_like(const Tensor& tensor);
/// Standard normal draws, with the shape, dtype and device of `tensor`.
TANDEM_API Tensor randn_like(const Tensor& tensor);
/// start, start + step, ... below `end` (above it for a negative step). The default dtype is i64 if all three are
/// integers, else f32. Throws ConfigError if the step never reaches `end`, DTypeError if an integer dtype cannot hold a
/// value.
template <class Start, class End, class Step>
  requires std::is_arithmetic_v<Start> && std::is_arithmetic_v<End> && std::is_arithmetic_v<Step>
Tensor arange(Start start, End end, Step step, TensorOptions options = {}) {
  constexpr bool kWhole = std::integral<Start> && std::integral<End> && std::integral<Step>;
  options.dtype = options.dtype.value_or(kWhole ? DType::i64 : DType::f32);
  return detail::arange(detail::exact(start), detail::exact(end), detail::exact(step), options);
}
template <class Start, class End>
  requires std::is_arithmetic_v<Start> && std::is_arithmetic_v<End>
Tensor arange(Start start, End end, const TensorOptions& options = {}) {
  return arange(start, end, 1, options);
}
template <class End>
  requires std::is_arithmetic_v<End>
Tensor arange(End end, const TensorOptions& options = {}) {
  return arange(0, end, 1, options);
}
/// `steps` equally spaced numbers from `start` to `end`, both included; f32 by default. A single step gives `start`.
/// Throws DTypeError if an integer dtype cannot hold a value.
TANDEM_API Tensor linspace(double start, double end, std::int64_t steps, const TensorOptions& options = {});
/// The identity matrix [n, n].
TANDEM_API Tensor eye(std::int64_t n, const TensorOptions& options = {});

/// Draws uniform on [0, 1).
TANDEM_API Tensor rand(const Shape& sizes, const TensorOptions& options = {});
/// Standard normal draws.
TANDEM_API Tensor randn(const Shape& sizes, const TensorOptions& options = {});
/// Random integers in [low, high); i64 by default.
TANDEM_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes, const TensorOptions& options = {});
/// A random permutation of 0 ... n - 1 as i64 (Fisher-Yates shuffle).
TANDEM_API Tensor randperm(std::int64_t n);

/// A tensor of shape `sizes` with a copy of `values` in row-major order. The default dtype is that of the values.
/// Throws ShapeError unless the number of values fits, DTypeError if an integer dtype cannot hold a value.
template <class T>
Tensor from_data(std::span<const T> values, const Shape& sizes, const TensorOptions& options = {}) {
  return detail::from_memory("from_data", values.data(), values.size(), dtype_of<T>, sizes, options);
}
template <class T>
Tensor from_data(const std::vector<T>& values, const Shape& sizes, const TensorOptions& options = {}) {
  return from_data(std::span<const T>(values), sizes, options);
}
/// The overload for flags, for example from to_vector<bool>().
template <std::same_as<bool> T>
Tensor from_data(const std::vector<T>& values, const Shape& sizes, const TensorOptions& options = {}) {
  return detail::from_bools(values, sizes, options);
}
/// A one-dimensional tensor with a copy of `values`.
template <class T>
Tensor from_data(const std::vector<T>& values) {
  return from_data(values, {static_cast<std::int64_t>(values.size())});
}

/// Takes over the vector without a copy, unless the options ask for another dtype or a GPU.
template <class T>
  requires(!std::same_as<T, bool>)
Tensor from_data(std::vector<T>&& values, const Shape& sizes, const TensorOptions& options = {}) {
  const Device device = options.device.value_or(core::thread_state().device);
  if (options.dtype.value_or(dtype_of<T>) != dtype_of<T> || device.type == DeviceType::cuda) {
    return from_data(std::span<const T>(values), sizes, options);
  }
  detail::check_count("from_data", sizes, values.size());
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return detail::from_foreign(
      "from_data", owner->data(), dtype_of<T>, sizes, contiguous_strides(sizes), [owner](void*) {}, options);
}
/// A one-dimensional tensor that takes over the vector where possible.
template <class T>
  requires(!std::same_as<T, bool>)
Tensor from_data(std::vector<T>&& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return from_data(std::move(values), {count});
}

/// A tensor on foreign memory, without a copy: `sizes` elements at `data`, in row-major order or `strides` (in
/// elements) apart. The memory must exist until the last tensor that uses it is gone. The thread that releases this
/// last tensor then calls `deleter` with `data`; the deleter must not throw. Writes to the tensor go to this memory
/// until an optimiser, which packs its parameters, moves them. Autograd does not notice writes by others. Throws
/// ValueError for memory that is null or not aligned for T, ShapeError for strides that do not fit, DTypeError if the
/// options name another dtype than T's, and DeviceError if the memory does not belong to the device. A call that throws
/// does not run the deleter.
template <class T>
  requires(!std::is_const_v<T>)
Tensor from_blob(T* data, const Shape& sizes, const Shape& strides, std::function<void(void*)> deleter,
                 const TensorOptions& options = {}) {
  return detail::from_foreign("from_blob", data, dtype_of<T>, sizes, strides, std::move(deleter), options);
}
/// from_blob() for elements in row-major order.
template <class T>
  requires(!std::is_const_v<T>)
Tensor from_blob(T* data, const Shape& sizes, std::function<void(void*)> deleter, const TensorOptions& options = {}) {
  return from_blob(data, sizes, contiguous_strides(sizes), std::move(deleter), options);
}
/// from_blob() without a deleter: the memory must outlive every tensor that uses it.
template <class T>
  requires(!std::is_const_v<T>)
Tensor from_blob(T* data, const Shape& sizes, const TensorOptions& options = {}) {
  return from_blob(data, sizes, nullptr, options);
}
/// from_blob() for a whole span. Throws ShapeError unless the size of the span fits.
template <class T>
  requires(!std::is_const_v<T>)
Tensor from_blob(std::span<T> values, const Shape& sizes, const TensorOptions& options = {}) {
  detail::check_count("from_blob", sizes, values.size());
  return from_blob(values.data(), sizes, nullptr, options);
}

/// A one-dimensional tensor of the given numbers: tensor({1.5, 2.0}) is f32, tensor({1, 2}) is i64, tensor({true}) is
/// bool, as in PyTorch. Use reshape() for more dimensions. Throws DTypeError if an integer dtype cannot hold a value.
template <class T>
  requires std::is_arithmetic_v<T>
Tensor tensor(std::initializer_list<T> values, TensorOptions options = {}) {
  options.dtype = options.dtype.value_or(detail::default_dtype<T>);
  std::vector<detail::Widest<T>> wide;
  for (const T value : values) {
    wide.push_back(detail::widest(value));
  }
  return detail::from_memory("tensor", wide.data(), wide.size(), dtype_of<detail::Widest<T>>,
                             {static_cast<std::int64_t>(wide.size())}, options);
}
/// A scalar (no dimensions): tensor(1.5) is f32, tensor(3) is i64.
template <class T>
  requires std::is_arithmetic_v<T>
Tensor tensor(T value, TensorOptions options = {}) {
  options.dtype = options.dtype.value_or(detail::default_dtype<T>);
  const auto wide = detail::widest(value);
  return detail::from_memory("tensor", &wide, 1, dtype_of<detail::Widest<T>>, {}, options);
}

}  // namespace tandem::inline v0
