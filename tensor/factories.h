#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// What a factory makes: {.dtype = DType::f64, .device = "cpu:1", .requires_grad = true}.
struct TensorOptions {
  DType dtype = DType::f32;
  std::optional<Device> device = std::nullopt;  // the thread's current device
  bool requires_grad = false;
};

/// Uninitialised elements.
TANDEM_API Tensor empty(const Shape& sizes, const TensorOptions& options = {});
TANDEM_API Tensor zeros(const Shape& sizes, const TensorOptions& options = {});
TANDEM_API Tensor ones(const Shape& sizes, const TensorOptions& options = {});
TANDEM_API Tensor full(const Shape& sizes, double value, const TensorOptions& options = {});
TANDEM_API Tensor empty_like(const Tensor& tensor);
TANDEM_API Tensor zeros_like(const Tensor& tensor);
TANDEM_API Tensor ones_like(const Tensor& tensor);
/// 0, 1, ..., end - 1 as i64.
TANDEM_API Tensor arange(std::int64_t end);
/// start, start + step, ... below end. Throws ConfigError for a step that never gets there.
TANDEM_API Tensor arange(double start, double end, double step, const TensorOptions& options = {});
/// The identity matrix [n, n].
TANDEM_API Tensor eye(std::int64_t n, const TensorOptions& options = {});

/// Uniform on [0, 1).
TANDEM_API Tensor rand(const Shape& sizes, const TensorOptions& options = {});
/// Standard normal.
TANDEM_API Tensor randn(const Shape& sizes, const TensorOptions& options = {});
/// Integers on [low, high).
TANDEM_API Tensor randint(std::int64_t low, std::int64_t high, const Shape& sizes,
                          const TensorOptions& options = {.dtype = DType::i64});
/// A random order of 0 ... n - 1 as i64 (Fisher and Yates).
TANDEM_API Tensor randperm(std::int64_t n);

namespace detail {
TANDEM_API Tensor from_memory(const void* data, std::size_t count, DType dtype, const Shape& sizes,
                              const TensorOptions& options);
}

/// A tensor with a copy of `values`, in row-major order, of `sizes` and the values' own element type (on
/// options.device). Throws ShapeError unless their number fits.
template <class T>
Tensor from_data(std::span<const T> values, const Shape& sizes, const TensorOptions& options = {}) {
  return detail::from_memory(values.data(), values.size(), dtype_of<T>, sizes, options);
}
template <class T>
Tensor from_data(const std::vector<T>& values, const Shape& sizes, const TensorOptions& options = {}) {
  return from_data(std::span<const T>(values), sizes, options);
}
template <class T>
Tensor from_data(const std::vector<T>& values) {
  return from_data(values, {static_cast<std::int64_t>(values.size())});
}

/// tensor({1.5, 2.0}) is f32, tensor({1, 2}) is i64, as in PyTorch; .to() changes it. One dimension; reshape for more.
template <class T>
  requires std::integral<T> || std::floating_point<T>
Tensor tensor(std::initializer_list<T> values) {
  using Stored = std::conditional_t<std::floating_point<T>, float,
                                    std::conditional_t<std::same_as<T, bool>, std::uint8_t, std::int64_t>>;
  std::vector<Stored> converted;
  for (const T value : values) {
    converted.push_back(static_cast<Stored>(value));
  }
  const Tensor made = from_data(converted);
  return std::same_as<T, bool> ? made.to(DType::boolean) : made;
}
/// A scalar (no dimensions): tensor(1.5) is f32.
inline Tensor tensor(double value) { return full({}, value); }

}  // namespace tandem::inline v0
