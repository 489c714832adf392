#pragma once

#include <string>
#include <type_traits>

#include <Eigen/Core>

#include <tandem/core/error.h>
#include <tandem/tensor/factories.h>

// The bridge to Eigen, for programs that use both; no other part of tandem includes this header. Matrices and tensors
// share memory, in both directions; only from_eigen() copies.

namespace tandem::inline v0 {

/// Eigen's view of a row-major matrix with any strides. A const T makes the view read-only.
template <class T>
using EigenMatrixMap = Eigen::Map<
    std::conditional_t<std::is_const_v<T>,
                       const Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                       Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>,
    Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
/// Eigen's view of a column vector with any stride. A const T makes the view read-only.
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

/// A read-only view of a tensor [rows, columns]: `eigen_matrix<float>(x).rowwise().norm()`. The view must not outlive
/// the tensor's elements. Throws ShapeError unless the tensor has two dimensions, DTypeError unless T is the element
/// type.
template <class T>
EigenMatrixMap<const T> eigen_matrix(const Tensor& x) {
  detail::check_dims("eigen_matrix", x, 2);
  return detail::map_matrix(x.data<T>(), x);
}
/// A writable view of a tensor [rows, columns]; bumps the version, so autograd notices the change. Also throws
/// ShapeError for an expanded tensor, in which several elements share memory.
template <class T>
EigenMatrixMap<T> mutable_eigen_matrix(Tensor& x) {
  detail::check_dims("mutable_eigen_matrix", x, 2);
  detail::check_writable("mutable_eigen_matrix", x.raw());
  return detail::map_matrix(x.mutable_data<T>(), x);
}
/// A read-only view of a tensor [size] as a column. Throws the same errors as eigen_matrix().
template <class T>
EigenVectorMap<const T> eigen_vector(const Tensor& x) {
  detail::check_dims("eigen_vector", x, 1);
  return detail::map_vector(x.data<T>(), x);
}
/// A writable view of a tensor [size] as a column; bumps the version. Throws the same errors as mutable_eigen_matrix().
template <class T>
EigenVectorMap<T> mutable_eigen_vector(Tensor& x) {
  detail::check_dims("mutable_eigen_vector", x, 1);
  detail::check_writable("mutable_eigen_vector", x.raw());
  return detail::map_vector(x.mutable_data<T>(), x);
}

/// Makes a tensor on the memory of a matrix [rows, columns] or of a vector [size], without a copy. The matrix must
/// outlive the tensor and keep its size. A column-major matrix gives strides [1, rows].
template <class Derived>
Tensor from_blob(Eigen::PlainObjectBase<Derived>& matrix, const TensorOptions& options = {}) {
  if constexpr (Derived::IsVectorAtCompileTime) {
    return from_blob(matrix.data(), {matrix.size()}, options);
  } else {
    const Shape strides = Derived::IsRowMajor ? Shape{matrix.cols(), 1} : Shape{1, matrix.rows()};
    return from_blob(matrix.data(), {matrix.rows(), matrix.cols()}, strides, nullptr, options);
  }
}

/// Makes a dense tensor with a copy of any expression: [rows, columns], or [size] for a vector type.
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
