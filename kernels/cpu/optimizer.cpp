#include <tandem/kernels/optimizer.h>

#include <algorithm>
#include <cmath>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const Sgd& kernel) {
  core::dispatch_floating(kernel.dtype, "SGD", [&]<class T>() {
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* buffer = static_cast<T*>(kernel.momentum_buffer);
    const T lr = static_cast<T>(kernel.state->learning_rate);
    const T momentum = static_cast<T>(kernel.momentum);
    const T decay = static_cast<T>(kernel.weight_decay);
    const bool first = kernel.state->step == 1;
    const T keep = first ? T(0) : momentum;
    const T take = first ? T(1) : static_cast<T>(1 - kernel.dampening);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      if (buffer == nullptr) {
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) {
          param[i] -= lr * (grad[i] + decay * param[i]);
        }
        return;
      }
      const T ahead = kernel.nesterov ? momentum : T(1);
      const T now = kernel.nesterov ? T(1) : T(0);
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const T g = grad[i] + decay * param[i];
        buffer[i] = keep * buffer[i] + take * g;
        param[i] -= lr * (now * g + ahead * buffer[i]);
      }
    });
  });
}

void run(OnCpu, Context&, const Adam& kernel) {
  core::dispatch_floating(kernel.dtype, "Adam", [&]<class T>() {
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* m = static_cast<T*>(kernel.exp_avg);
    T* v = static_cast<T*>(kernel.exp_avg_sq);
    const double lr = kernel.state->learning_rate;
    const auto step = static_cast<double>(kernel.state->step);
    const double correction1 = 1 - std::pow(kernel.beta1, step);
    const T step_size = static_cast<T>(lr / correction1);
    const T root2 = static_cast<T>(1 / std::sqrt(1 - std::pow(kernel.beta2, step)));
    const T beta1 = static_cast<T>(kernel.beta1);
    const T beta2 = static_cast<T>(kernel.beta2);
    const T rest1 = static_cast<T>(1 - kernel.beta1);
    const T rest2 = static_cast<T>(1 - kernel.beta2);
    const T eps = static_cast<T>(kernel.eps);
    const T shrink = kernel.decoupled ? static_cast<T>(1 - lr * kernel.weight_decay) : T(1);
    const T decay = kernel.decoupled ? T(0) : static_cast<T>(kernel.weight_decay);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const T p = param[i] * shrink;
        const T g = grad[i] + decay * p;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        param[i] = p - step_size * m[i] / (std::sqrt(v[i]) * root2 + eps);
      }
    });
  });
}

void run(OnCpu, Context& context, const SquaredNorm& kernel) {
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    const T* values = static_cast<const T*>(kernel.values);
    const ScratchScope scope(context.scratch);
    const std::int64_t chunks = (kernel.count + cpu::kElementChunk - 1) / cpu::kElementChunk;
    auto* partial = context.scratch.allocate_array<double>(static_cast<std::size_t>(chunks));
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      constexpr int kLanes = 8;
      double lanes[kLanes] = {};
      for (std::int64_t i = begin; i < end; i += kLanes) {
        for (int lane = 0; lane < std::min<std::int64_t>(kLanes, end - i); ++lane) {
          const double value = static_cast<double>(values[i + lane]);
          lanes[lane] += value * value;
        }
      }
      double sum = 0;
      for (const double lane : lanes) {
        sum += lane;
      }
      partial[begin / cpu::kElementChunk] = sum;
    });
    double total = kernel.accumulate == Accumulate::yes ? *kernel.total : 0.0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      total += partial[chunk];
    }
    *kernel.total = total;
  });
}

void run(OnCpu, Context&, const ClipByNorm& kernel) {
  const double factor = kernel.max_norm / (std::sqrt(*kernel.squared_norm) + 1e-6);
  if (factor >= 1) {
    return;
  }
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    T* values = static_cast<T*>(kernel.values);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        values[i] = values[i] == T(0) ? values[i] : values[i] * static_cast<T>(factor);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
