#include <tandem/kernels/cpu/pointwise_rows.h>

namespace tandem::inline v0::kernels::cpu {

PointwiseRow<float> pointwise_row(float, PointwiseOp op, Accumulate accumulate) {
  return TANDEM_BY_ISA(pointwise_row)(op, accumulate);
}

}  // namespace tandem::inline v0::kernels::cpu
