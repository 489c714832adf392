#pragma once

#include <tandem/kernels/matmul.h>
#include <tandem/kernels/reduce.h>

// Internal: the sums that a product gives besides, as passes of their own.

namespace tandem::inline v0::kernels {

/// Matmul::column_sums of a result that is there.
inline Reduce column_sums_of(const Matmul& product) {
  const void* const out = product.out;
  return {.op = ReduceOp::sum,
          .dtype = product.dtype,
          .kept = {.ndim = 1, .sizes = {product.n}},
          .reduced = {.ndim = 1, .sizes = {product.m}},
          .out = {.data = product.after.column_sums, .strides = {1}},
          .in = {.data = const_cast<void*>(out), .strides = {1}},
          .in_reduced = {.data = const_cast<void*>(out), .strides = {product.out_stride}}};
}

/// Matmul::a_sums.
inline Reduce a_sums_of(const Matmul& product) {
  return {.op = ReduceOp::sum,
          .dtype = product.dtype,
          .kept = {.ndim = 1, .sizes = {product.m}},
          .reduced = {.ndim = 1, .sizes = {product.k}},
          .out = {.data = product.after.a_sums, .strides = {1}},
          .in = {.data = const_cast<void*>(product.a.data), .strides = {product.a.row_stride}},
          .in_reduced = {.data = const_cast<void*>(product.a.data), .strides = {product.a.col_stride}}};
}

}  // namespace tandem::inline v0::kernels
