#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/softmax_loss.h>

namespace tandem::inline v0::kernels {

namespace {

// Sum of squared differences with eight independent f64 chains, in a fixed order.
template <class T>
double sum_of_squares(const T* a, const T* b, std::int64_t count) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const ComputeType<T> d = a[i + lane] - b[i + lane];
      lanes[lane] += static_cast<double>(d) * static_cast<double>(d);
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const ComputeType<T> d = a[i] - b[i];
    lanes[lane] += static_cast<double>(d) * static_cast<double>(d);
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

void run(OnCpu, Context& context, const SquaredError& kernel) {
  core::dispatch_floating(kernel.dtype, "mse_loss", [&]<class T>() {
    const T* a = static_cast<const T*>(kernel.a);
    const T* b = static_cast<const T*>(kernel.b);
    T* loss = static_cast<T*>(kernel.loss);
    if (kernel.loss_per_element) {
      core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          loss[i] = T((a[i] - b[i]) * (a[i] - b[i]));
        }
      });
      return;
    }
    const ScratchScope scope(context.scratch);
    const std::int64_t chunks = (kernel.count + cpu::kElementChunk - 1) / cpu::kElementChunk;
    auto* partial = context.scratch.allocate_array<double>(static_cast<std::size_t>(chunks));
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      partial[begin / cpu::kElementChunk] = sum_of_squares(a + begin, b + begin, end - begin);
    });
    double total = 0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      total += partial[chunk];
    }
    *loss = T(static_cast<ComputeType<T>>(total * kernel.scale));
  });
}

void run(OnCpu, Context&, const SquaredErrorGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "mse_loss", [&]<class T>() {
    const T* a = static_cast<const T*>(kernel.a);
    const T* b = static_cast<const T*>(kernel.b);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* out = static_cast<T*>(kernel.a_grad);
    using C = ComputeType<T>;
    const C scale = static_cast<C>(2 * kernel.scale);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const C value = (a[i] - b[i]) * (grad[kernel.loss_per_element ? i : 0] * scale);
        out[i] = T(kernel.accumulate == Accumulate::yes ? out[i] + value : value);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
