#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/optimizer_loops.h>
#include <tandem/kernels/grad_scale.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const StartGradScale& kernel) { formula::apply(kernel); }
void run(OnCpu, Context&, const FinishGradScale& kernel) { formula::apply(kernel); }
void run(OnCpu, Context&, const UpdateGradScale& kernel) { formula::apply(kernel); }

namespace {

template <class T, class C>
bool any_nonfinite(const T* values, C factor, std::int64_t begin, std::int64_t end) {
  int bad = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    bad |= static_cast<int>(!(std::abs(C(values[i]) * factor) <= std::numeric_limits<C>::max()));
  }
  return bad != 0;
}

}  // namespace

void run(OnCpu, Context&, const FindInf& kernel) {
  core::dispatch_floating(kernel.dtype, "GradScaler", [&]<class T>() {
    using C = ComputeType<T>;
    T* gradients = static_cast<T*>(kernel.gradients);
    const C inverse = static_cast<C>(kernel.record->inverse);
    const bool unscale = kernel.unscale;
    std::atomic<bool> found{false};
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      bool bad = false;
      if constexpr (std::is_same_v<T, float>) {
        constexpr std::int64_t kCached = 4096;  // elements that the second loop finds in the first-level cache
        for (std::int64_t first = begin; first < end; first += kCached) {
          const std::int64_t last = std::min(first + kCached, end);
          bad = TANDEM_BY_ISA(any_nonfinite_f32)(gradients, inverse, first, last) || bad;
          if (unscale) {
            TANDEM_BY_ISA(scale_nonzero)(gradients + first, inverse, last - first);
          }
        }
      } else if constexpr (is_16_bit<T>) {
        const auto look = [&](float* floats, std::int64_t, std::int64_t count) {
          bad = TANDEM_BY_ISA(any_nonfinite_f32)(floats, inverse, 0, count) || bad;
        };
        if (!unscale) {
          cpu::for_each_piece(gradients + begin, end - begin, look);
        } else {
          cpu::change_pieces(gradients + begin, end - begin,
                             [&](float* floats, std::int64_t first, std::int64_t count) {
                               look(floats, first, count);
                               TANDEM_BY_ISA(scale_nonzero)(floats, inverse, count);
                             });
        }
      } else {
        bad = any_nonfinite(gradients, inverse, begin, end);
      }
      if (unscale && std::is_same_v<T, double>) {
        for (std::int64_t i = begin; i < end; ++i) {
          gradients[i] = C(gradients[i]) == C(0) ? gradients[i] : T(C(gradients[i]) * inverse);
        }
      }
      if (bad) {
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
