#include <tandem/kernels/cpu/batch_norm_tiles.h>
#include <tandem/kernels/cpu/layer_norm_rows.h>

// The norms of f32. The order of additions does not depend on the instruction set, and so the bits don't either.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

void normalise_row_f32(const LayerNorm& kernel, std::int64_t row) { normalise_row<float>(kernel, row); }

void row_gradient_f32(const LayerNormGrad& kernel, std::int64_t row) { row_gradient<float>(kernel, row); }

void affine_sums_f32(const LayerNormGrad& kernel, const NormTile& tile, double (&sums)[2][kTileColumns]) {
  affine_sums<float>(kernel, tile, sums);
}

void tile_moments_f32(const float* in, const Tiles& tiles, const NormTile& tile, Moments* out) {
  tile_moments(in, tiles, tile, out);
}

void normalise_tile_f32(const BatchNorm& kernel, const Tiles& tiles, const NormTile& tile) {
  normalise_tile<float>(kernel, tiles, tile);
}

void tile_sums_f32(const BatchNormGrad& kernel, const Tiles& tiles, const NormTile& tile, NormSums* out) {
  tile_sums<float>(kernel, tiles, tile, out);
}

void input_gradient_tile_f32(const BatchNormGrad& kernel, const Tiles& tiles, const NormSums* means,
                             const NormTile& tile) {
  input_gradient_tile<float>(kernel, tiles, means, tile);
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
