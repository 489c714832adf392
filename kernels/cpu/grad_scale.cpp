#include <atomic>
#include <cmath>
#include <limits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/grad_scale.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const StartGradScale& kernel) { formula::apply(kernel); }
void run(OnCpu, Context&, const FinishGradScale& kernel) { formula::apply(kernel); }
void run(OnCpu, Context&, const UpdateGradScale& kernel) { formula::apply(kernel); }

void run(OnCpu, Context&, const FindInf& kernel) {
  core::dispatch_floating(kernel.dtype, "GradScaler", [&]<class T>() {
    using C = ComputeType<T>;
    T* gradients = static_cast<T*>(kernel.gradients);
    const C inverse = static_cast<C>(kernel.record->inverse);
    const bool unscale = kernel.unscale;
    std::atomic<bool> found{false};
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      int bad = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const C product = C(gradients[i]) * inverse;
        bad |= static_cast<int>(!(std::abs(product) <= std::numeric_limits<C>::max()));
        if (unscale) {
          gradients[i] = C(gradients[i]) == C(0) ? gradients[i] : T(product);
        }
      }
      if (bad != 0) {
        found.store(true, std::memory_order_relaxed);
      }
    });
    if (found.load(std::memory_order_relaxed)) {
      kernel.record->found_inf = 1;
      *kernel.found_inf = 1;
    }
  });
}

}  // namespace tandem::inline v0::kernels
