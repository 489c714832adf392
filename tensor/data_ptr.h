#pragma once

#include <optional>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

// The addresses that kernels of one's own work on: on any device, and in a captured step.

namespace tandem::inline v0 {

namespace detail {
TANDEM_API const void* dense_data(const char* call, const Tensor& tensor, std::optional<DType> expected);
TANDEM_API void* dense_data_for_writing(const char* call, const Tensor& tensor, std::optional<DType> expected);
}  // namespace detail

/// The first element in the memory of the tensor's device, for a kernel; data() is for the host. A captured step knows
/// the address. Throws ShapeError unless the elements lie in row-major order without gaps: call contiguous() before.
inline const void* const_data_ptr(const Tensor& tensor) {
  return detail::dense_data("const_data_ptr", tensor, std::nullopt);
}
/// This overload expects elements of type T. It throws DTypeError for others.
template <class T>
const T* const_data_ptr(const Tensor& tensor) {
  return static_cast<const T*>(detail::dense_data("const_data_ptr", tensor, dtype_of<T>));
}

/// The first element for a kernel that writes: the result of empty(), or a tensor that is changed in place. It bumps
/// the version, so autograd notices the change. Throws ShapeError as const_data_ptr(), and AutogradError for memory
/// that a replica only reads.
inline void* mutable_data_ptr(const Tensor& tensor) {
  return detail::dense_data_for_writing("mutable_data_ptr", tensor, std::nullopt);
}
/// This overload expects elements of type T. It throws DTypeError for others.
template <class T>
T* mutable_data_ptr(const Tensor& tensor) {
  return static_cast<T*>(detail::dense_data_for_writing("mutable_data_ptr", tensor, dtype_of<T>));
}

}  // namespace tandem::inline v0
