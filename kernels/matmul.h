#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/host_device.h>
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
/// relu_is_off(relu_mask), laid out as `out`: the gradient of what a ReLU gave.
/// `out` is row-major with row stride `out_stride`, and overlaps nothing. k = 0 gives zeros (plus the epilogue).
///
/// What a backward pass wants besides, each written if it is not null. A GPU does it within the product where cuBLASLt
/// can and the planner finds it worth while; everywhere else it is a pass of its own.
/// - `relu_bits`, with relu: for which results not relu_is_off, row by row of relu_bits_stride(n) bytes, from a
///   multiple of 16 bytes on. Column j is bit j % 8 of byte j / 8; what is behind column n is anything. Where a GPU
///   rounds a positive sum to 0, the bit may still be 1. Of NaN in cuBLASLt's own ReLU: docs/gpu.md.
/// - `column_sums`: [n], the sums over the rows of the result.
/// - `a_sums`: [m], the sums of a over k.
/// And `relu_mask_bits`, if it is not null, says the same as relu_mask in the form of relu_bits: either may be read.
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
  const void* relu_mask_bits = nullptr;
  void* relu_bits = nullptr;
  void* column_sums = nullptr;
  void* a_sums = nullptr;
};
/// Whether a ReLU that gave `result` lets no gradient through; NaN does let it, as in PyTorch's threshold_backward and
/// PointwiseOp::relu_grad.
template <class C>
TANDEM_HD constexpr bool relu_is_off(C result) noexcept {
  return result <= C(0);
}
/// Bytes of a row of bits: those of 128 columns at a time.
constexpr std::int64_t relu_bits_stride(std::int64_t columns) noexcept { return (columns + 127) / 128 * 16; }
/// Whether matrix products of that type on that device write bits and sums along the way: on a GPU, in 16 bits and
/// TF32, unless cuda::set_fused_backward() forbids it. Elsewhere they are allowed, but cost passes of their own.
TANDEM_API bool fuses_backward(Device device, DType dtype);
void run(OnCpu, Context& context, const Matmul& kernel);
void run(OnCuda, Context& context, const Matmul& kernel);

/// `matrix` for every position of `batch`: the operands' strides (elements) lead from the first matrix a, b and out to
/// the others. Nothing but bias and relu besides.
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
