#include <tandem/kernels/cpu/eigen_product_impl.h>

namespace tandem::inline v0::kernels::cpu {

void eigen_product(float, const Matmul& kernel, const OutputBlock& block) { eigen_product_of<float>(kernel, block); }

}  // namespace tandem::inline v0::kernels::cpu
