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

/// An optimiser's step for the elements of a product, which are its gradients. One of the loops is there; `grad` in it
/// is the product's output, to which only sums of a part of the depth are written.
struct TileUpdate {
  const SgdLoop<float>* sgd = nullptr;
  const AdamLoop<float>* adam = nullptr;
  bool scaled;  // the gradients have a factor

  explicit TileUpdate(const SgdLoop<float>& loop) : sgd(&loop), scaled(loop.step.gradient != 1) {}
  explicit TileUpdate(const AdamLoop<float>& loop) : adam(&loop), scaled(loop.step.gradient != 1) {}
};

/// The product and the step, on several threads. The product is one that fuses_update().
void multiply_and_update(Context& context, const Matmul& kernel, const TileUpdate& update);

// Where the machine has fused multiply-adds, gemm_f32 is tandem's own and the cut into blocks changes no bit of the
// output. The baseline's gemm_f32 is Eigen's, and takes no update.
TANDEM_FOR_EACH_ISA(void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch,
                                  const TileUpdate* update = nullptr);
                    void eigen_product_f64(const Matmul& kernel, const OutputBlock& block);)

}  // namespace tandem::inline v0::kernels::cpu
