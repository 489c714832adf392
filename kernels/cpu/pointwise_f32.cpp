#include <tandem/kernels/cpu/pointwise_rows.h>

namespace tandem::inline v0::kernels::cpu {

PointwiseRow<float> pointwise_row(float, PointwiseOp op, Accumulate accumulate) {
  return row_from_table<float, PointwiseOp::count_>(op, accumulate);
}

}  // namespace tandem::inline v0::kernels::cpu
