#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/scratch.h>

// Products of blocks. One thread: who calls cuts the work.

namespace tandem::inline v0::kernels::cpu {

/// Rows [row, row + rows) and columns [col, col + cols) of the kernel's output.
struct OutputBlock {
  std::int64_t row, rows, col, cols;
};

// gemm_f32 is our own where there are fused multiply-adds, and then how the output is cut into blocks changes no bit of
// it; the baseline's is Eigen's.
TANDEM_FOR_EACH_ISA(void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch);
                    void eigen_product_f64(const Matmul& kernel, const OutputBlock& block);)

}  // namespace tandem::inline v0::kernels::cpu
