#include <tandem/kernels/prepared_gradient.h>

#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const RescaleGradient& kernel) {
  const float g = *kernel.grad;
  if (g == 1) {
    return;
  }
  core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      kernel.gradient[i] *= g;
    }
  });
}

}  // namespace tandem::inline v0::kernels
