#pragma once

#include <string>
#include <type_traits>

#include <Eigen/Core>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

// The bridge to Eigen, for programs that use both: nothing else of tandem includes this. Matrices and tensors look at
// the same memory, in both directions; only from_eigen() copies.

namespace tandem::inline v0 {

/// Eigen's view of a row-major matrix with any strides. T is const for reading.
template <class T>
using EigenMatrixMap = Eigen::Map<
    std::conditional_t<std::is_const_v<T>,
                       const Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                       Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>,
    Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
/// Eigen's view of a vector, a column, with any stride. T is const for reading.
template <class T>
using EigenVectorMap =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const Eigen::VectorX<std::remove_const_t<T>>, Eigen::VectorX<T>>,
               Eigen::Unaligned, Eigen::InnerStride<Eigen::Dynamic>>;

namespace detail {

template <class T>
EigenMatrixMap<T> map_matrix(T* first, const Tensor& x) {
  return {first, x.size(0), x.size(1), {x.strides()[0], x.strides()[1]}};
}
template <class T>
EigenVectorMap<T> map_vector(T* first, const Tensor& x) {
  return {first, x.size(0), Eigen::InnerStride<Eigen::Dynamic>(x.strides()[0])};
}
inline void check_dims(const char* op, const Tensor& x, int dims) {
  if (x.dim() != dims) {
    throw ShapeError(std::string(op) + ": needs " + std::to_string(dims) + " dimension(s), the tensor is " +
                     to_string(x.shape()) + "; reshape it");
  }
}

}  // namespace detail

/// A tensor [rows, columns] for reading: `eigen_matrix<float>(x).rowwise().norm()`. Lives no longer than the tensor's
/// elements. Throws ShapeError for other dimensions, DTypeError unless T is the element type.
template <class T>
EigenMatrixMap<const T> eigen_matrix(const Tensor& x) {
  detail::check_dims("eigen_matrix", x, 2);
  return detail::map_matrix(x.data<T>(), x);
}
/// The same for writing; bumps the version, so that autograd notices. Throws ShapeError for an expanded tensor, several
/// of whose elements share memory.
template <class T>
EigenMatrixMap<T> mutable_eigen_matrix(Tensor& x) {
  detail::check_dims("mutable_eigen_matrix", x, 2);
  detail::check_writable("mutable_eigen_matrix", x.raw());
  return detail::map_matrix(x.mutable_data<T>(), x);
}
/// A tensor [size] for reading, as a column. Errors as above.
template <class T>
EigenVectorMap<const T> eigen_vector(const Tensor& x) {
  detail::check_dims("eigen_vector", x, 1);
  return detail::map_vector(x.data<T>(), x);
}
/// The same for writing; bumps the version. Errors as above.
template <class T>
EigenVectorMap<T> mutable_eigen_vector(Tensor& x) {
  detail::check_dims("mutable_eigen_vector", x, 1);
  detail::check_writable("mutable_eigen_vector", x.raw());
  return detail::map_vector(x.mutable_data<T>(), x);
}

/// A tensor on the memory of a matrix [rows, columns], or of a vector type [size], without a copy. The matrix must
/// outlive it and keep its size. Column-major ones give strides [1, rows].
template <class Derived>
Tensor from_blob(Eigen::PlainObjectBase<Derived>& matrix, const TensorOptions& options = {}) {
  if constexpr (Derived::IsVectorAtCompileTime) {
    return from_blob(matrix.data(), {matrix.size()}, options);
  } else {
    const Shape strides = Derived::IsRowMajor ? Shape{matrix.cols(), 1} : Shape{1, matrix.rows()};
    return from_blob(matrix.data(), {matrix.rows(), matrix.cols()}, strides, nullptr, options);
  }
}

/// A dense tensor with a copy of any expression: [rows, columns], or [size] of a vector type.
template <class Derived>
Tensor from_eigen(const Eigen::DenseBase<Derived>& expression, const TensorOptions& options = {}) {
  using T = typename Derived::Scalar;
  Tensor made = empty({expression.rows(), expression.cols()}, {.dtype = dtype_of<T>, .device = options.device});
  mutable_eigen_matrix<T>(made) = expression.derived();
  if (Derived::IsVectorAtCompileTime) {
    made = made.reshape({expression.size()});
  }
  if (options.dtype.has_value()) {
    made = made.to(*options.dtype);
  }
  return options.requires_grad ? made.requires_grad_() : made;
}

}  // namespace tandem::inline v0
