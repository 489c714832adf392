#include <tandem/kernels/cpu/pointwise_rows.h>

namespace tandem::inline v0::kernels::cpu {

PointwiseRow<double> pointwise_row(double, PointwiseOp op, Accumulate accumulate) {
  return row_from_table<double, PointwiseOp::count_>(op, accumulate);
}

}  // namespace tandem::inline v0::kernels::cpu
