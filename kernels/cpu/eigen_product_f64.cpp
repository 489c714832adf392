#include <tandem/kernels/cpu/eigen_product_impl.h>

namespace tandem::inline v0::kernels::cpu {

void eigen_product(double, const Matmul& kernel, const OutputBlock& block) { eigen_product_of<double>(kernel, block); }

}  // namespace tandem::inline v0::kernels::cpu
