#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/scratch.h>

// Products of blocks on one thread; the caller divides the work.

namespace tandem::inline v0::kernels::cpu {

/// Rows [row, row + rows) and columns [col, col + cols) of the kernel's output.
struct OutputBlock {
  std::int64_t row, rows, col, cols;
};

// Where the machine has fused multiply-adds, gemm_f32 is tandem's own and the cut into blocks changes no bit of the
// output. The baseline's gemm_f32 is Eigen's.
TANDEM_FOR_EACH_ISA(void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch);
                    void eigen_product_f64(const Matmul& kernel, const OutputBlock& block);)

}  // namespace tandem::inline v0::kernels::cpu
