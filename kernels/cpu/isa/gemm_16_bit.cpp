#include <tandem/kernels/cpu/gemm.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/gemm_product.h>

// Products of 16-bit numbers in f32.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

void gemm_16_bit(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate*) {
  kernel.dtype == DType::bf16 ? multiply<FloatUnits, BFloat16>(kernel, block, scratch, nullptr)
                              : multiply<FloatUnits, Float16>(kernel, block, scratch, nullptr);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
