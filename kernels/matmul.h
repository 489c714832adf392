#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>
#include <tandem/kernels/reduce.h>

namespace tandem::inline v0::kernels {

/// A matrix in memory; one of the strides is 1.
struct Matrix {
  const void* data;
  std::int64_t row_stride;
  std::int64_t col_stride;
};

/// Work on a product out[m, n] in the same pass: + bias, then max(., 0) if `relu`, then 0 wherever
/// relu_is_off(relu_mask), which is the gradient of a ReLU with the result relu_mask.
///
/// `relu_bits` and the sums serve a backward pass; each is written unless null. A GPU writes them within a small f32
/// product of its own, or within cuBLASLt's if that can and the planner finds the fusion worthwhile. Otherwise each
/// takes its own pass, except that a mask and the column sums share one.
struct Epilogue {
  const void* bias = nullptr;  // [n]
  bool relu = false;
  const void* relu_mask = nullptr;       // laid out like `out`
  const void* relu_mask_bits = nullptr;  // the same mask in the form of relu_bits: either may be read
  /// With `relu`: one bit per result, set unless relu_is_off. Rows take relu_bits_stride(n) bytes and start at a
  /// multiple of 16 bytes. Column j is bit j % 8 of byte j / 8; bits after column n are undefined. If a GPU rounds a
  /// positive sum to 0, the bit may still be 1. For NaN in cuBLASLt's own ReLU see docs/gpu.md.
  void* relu_bits = nullptr;
  void* column_sums = nullptr;  // [n], the sums over the rows of the result
  void* a_sums = nullptr;       // [m], the sums of the left side over k
};

/// Whether f32 products may round their factors to bf16: set_float32_matmul_precision("medium").
TANDEM_API bool allows_bf16_products() noexcept;

/// out[m, n] (+)= a[m, k] b[k, n], then the epilogue. `out` is row-major with row stride `out_stride`, and overlaps
/// nothing. k = 0 gives zeros (plus the epilogue).
struct Matmul {
  static constexpr const char* kName = "matmul";
  DType dtype;
  Accumulate accumulate = Accumulate::no;
  std::int64_t m, n, k;
  Matrix a;
  Matrix b;
  void* out;
  std::int64_t out_stride;
  Epilogue after{};
  bool in_bf16 = allows_bf16_products();  // for CPUs, which ask when the kernel is made: a captured step keeps it
};
/// The column sums of a result that is there, as a pass of their own.
inline Reduce column_sums_of(const Matmul& product) {
  return {.op = ReduceOp::sum,
          .dtype = product.dtype,
          .kept = {.ndim = 1, .sizes = {product.n}},
          .reduced = {.ndim = 1, .sizes = {product.m}},
          .out = {.data = product.after.column_sums, .strides = {1}},
          .in = {.data = product.out, .strides = {1}},
          .in_reduced = {.data = product.out, .strides = {product.out_stride}}};
}

/// The sums of the left side, as a pass of their own.
inline Reduce a_sums_of(const Matmul& product) {
  return {.op = ReduceOp::sum,
          .dtype = product.dtype,
          .kept = {.ndim = 1, .sizes = {product.m}},
          .reduced = {.ndim = 1, .sizes = {product.k}},
          .out = {.data = product.after.a_sums, .strides = {1}},
          .in = {.data = const_cast<void*>(product.a.data), .strides = {product.a.row_stride}},
          .in_reduced = {.data = const_cast<void*>(product.a.data), .strides = {product.a.col_stride}}};
}

/// Whether a ReLU that gave `result` lets no gradient through; NaN does let it, as in PyTorch's threshold_backward and
/// PointwiseOp::relu_grad.
template <class C>
TANDEM_HD constexpr bool relu_is_off(C result) noexcept {
  return result <= C(0);
}
/// Bytes of a row of bits: those of 128 columns at a time.
constexpr std::int64_t relu_bits_stride(std::int64_t columns) noexcept { return (columns + 127) / 128 * 16; }
/// Whether matrix products on that device should write the sums of an Epilogue along the way: on a GPU, unless
/// cuda::set_fused_backward() forbids it. Elsewhere they are allowed, but cost passes of their own.
TANDEM_API bool fuses_backward(Device device);
/// Whether they should also write and read relu_bits: in 16 bits and TF32.
TANDEM_API bool writes_relu_bits(Device device, DType dtype);
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
