#include <tandem/kernels/cpu/gemm.h>

#if defined(__AVX2__)

#include <tandem/kernels/cpu/isa/gemm_product.h>

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

template void multiply_tiles<FloatUnits>(LeftTiles, const TileShape&, std::int64_t, std::int64_t, const Panels&,
                                         std::int64_t, const Output<float>&, Ahead);

void gemm_f32(const Matmul& kernel, const OutputBlock& block, ScratchArena& scratch, const TileUpdate* update) {
  multiply<FloatUnits, float>(kernel, block, scratch, update);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA

#endif
