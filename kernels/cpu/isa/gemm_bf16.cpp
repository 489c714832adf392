#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/cpu/isa/gemm_product.h>

// Products of bf16, and of f32 rounded to bf16, by the processor's own instruction.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

void gemm_bf16(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate* update) {
  kernel.dtype == DType::bf16 ? multiply<Bf16Units, BFloat16>(kernel, block, scratch, nullptr)
                              : multiply<Bf16Units, float>(kernel, block, scratch, update);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
