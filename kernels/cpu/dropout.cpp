#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/random.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const Dropout& kernel) {
  core::dispatch_floating(kernel.dtype, "dropout", [&]<class T>() {
    const T* in = static_cast<const T*>(kernel.in);
    T* out = static_cast<T*>(kernel.out);
    using C = ComputeType<T>;
    // p = 1 drops everything: 1 / (1 - p) must not make NaN of it.
    const C scale = kernel.p < 1 ? static_cast<C>(1 / (1 - kernel.p)) : C(0);
    const float p = static_cast<float>(kernel.p);
    const std::uint64_t base = kernel.state->random_offset + kernel.offset;
    core::parallel_for(kernel.count, 8192, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += 4) {
        const auto block = philox(kernel.seed, base + static_cast<std::uint64_t>(i / 4));
        for (int lane = 0; lane < 4 && i + lane < end; ++lane) {
          const bool keep = uniform_f32(block[static_cast<std::size_t>(lane)]) >= p;
          kernel.mask[i + lane] = keep;
          out[i + lane] = T(keep ? in[i + lane] * scale : C(0));
        }
      }
    });
  });
}

void run(OnCpu, Context&, const DropoutGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "dropout", [&]<class T>() {
    const T* grad = static_cast<const T*>(kernel.grad);
    T* out = static_cast<T*>(kernel.in_grad);
    using C = ComputeType<T>;
    const C scale = kernel.p < 1 ? static_cast<C>(1 / (1 - kernel.p)) : C(0);
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const C value = kernel.mask[i] != 0 ? grad[i] * scale : C(0);
        out[i] = T(kernel.accumulate == Accumulate::yes ? out[i] + value : value);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
