#include <tandem/kernels/fused_update.h>

namespace tandem::inline v0::kernels {

void run(OnCuda, Context& context, const MatmulSgd& kernel) {
  run(OnCuda{}, context, kernel.product);
  run(OnCuda{}, context, kernel.update);
}

void run(OnCuda, Context& context, const MatmulAdam& kernel) {
  run(OnCuda{}, context, kernel.product);
  run(OnCuda{}, context, kernel.update);
}

}  // namespace tandem::inline v0::kernels
