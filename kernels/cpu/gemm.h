#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/optimizer_loops.h>
#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/scratch.h>

// Products of blocks on one thread; the caller divides the work.

namespace tandem::inline v0::kernels::cpu {

/// Rows [row, row + rows) and columns [col, col + cols) of the kernel's output.
struct OutputBlock {
  std::int64_t row, rows, col, cols;
};

/// Returns the element to write at `at`, an offset from the output's beginning, for the sum `value`.
template <class T>
T finish(const Matmul& kernel, ComputeType<T> value, std::int64_t at, std::int64_t column) {
  using C = ComputeType<T>;
  value += kernel.accumulate == Accumulate::yes ? C(static_cast<const T*>(kernel.out)[at]) : C(0);
  value += kernel.after.bias != nullptr ? C(static_cast<const T*>(kernel.after.bias)[column]) : C(0);
  if (kernel.after.relu_mask != nullptr && relu_is_off(C(static_cast<const T*>(kernel.after.relu_mask)[at]))) {
    return T(0);
  }
  return kernel.after.relu && value < C(0) ? T(0) : T(value);
}

/// An optimiser's step for the elements of a product, which are its gradients. One of the loops is there; `grad` in it
/// is the product's output, to which only sums of a part of the depth are written.
struct TileUpdate {
  const SgdLoop<float>* sgd = nullptr;
  const AdamLoop<float>* adam = nullptr;
  bool scaled;     // the gradients have a factor
  bool long_rows;  // as set_long_update_rows() says

  TileUpdate(const SgdLoop<float>& loop, bool are_long)
      : sgd(&loop), scaled(loop.step.gradient != 1), long_rows(are_long) {}
  TileUpdate(const AdamLoop<float>& loop, bool are_long)
      : adam(&loop), scaled(loop.step.gradient != 1), long_rows(are_long) {}
};

/// The product and the step, on several threads. The product is one that fuses_update().
void multiply_and_update(Context& context, const Matmul& kernel, const TileUpdate& update);

// k is not 0. Where the machine has fused multiply-adds, the products are tandem's own and the cut into blocks changes
// no bit of the output. The baseline's products are Eigen's, and take no update. 16-bit products take none anywhere.
TANDEM_FOR_EACH_ISA(void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch,
                                  const TileUpdate* update = nullptr);
                    void gemm_16_bit(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch,
                                     const TileUpdate* = nullptr);
                    void eigen_product_f64(const Matmul& kernel, const OutputBlock& block);)

#if defined(__x86_64__)
/// Products of bf16, and of f32 whose factors are rounded to bf16, on machines with core::has_bf16_products().
namespace avx512_bf16 {
void gemm_bf16(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch,
               const TileUpdate* update = nullptr);
}
/// This namespace has the same products on machines with core::has_amx().
namespace avx512_amx {
void gemm_amx(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch,
              const TileUpdate* update = nullptr);
}
#endif

}  // namespace tandem::inline v0::kernels::cpu
