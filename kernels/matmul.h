#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// A matrix in memory; one of the strides is 1.
struct Matrix {
  const void* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};

/// out[m, n] (+)= a[m, k] b[k, n], then + bias[n] if bias is not null, then max(., 0) if relu, then 0 wherever
/// relu_mask, laid out as `out`, is not positive: the gradient of what a ReLU gave.
/// `out` is row-major with row stride `out_stride`, and overlaps nothing. k = 0 gives zeros (plus the epilogue).
struct Matmul {
  static constexpr const char* kName = "matmul";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  bool relu = false;
  std::int64_t m, n, k;
  Matrix a;
  Matrix b;
  void* out;
  std::int64_t out_stride;
  const void* bias = nullptr;
  const void* relu_mask = nullptr;
};
void run(OnCpu, Context& context, const Matmul& kernel);
void run(OnCuda, Context& context, const Matmul& kernel);

/// `matrix` for every position of `batch`: the operands' strides (elements) lead from the first matrix a, b and out to
/// the others. No relu_mask.
struct BatchedMatmul {
  static constexpr const char* kName = "batched_matmul";
  Matmul matrix;
  Loop batch;
  Operand a;
  Operand b;
  Operand out;
};
void run(OnCpu, Context& context, const BatchedMatmul& kernel);
void run(OnCuda, Context& context, const BatchedMatmul& kernel);

}  // namespace tandem::inline v0::kernels
