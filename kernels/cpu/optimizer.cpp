#include <tandem/kernels/optimizer.h>

#include <algorithm>
#include <cmath>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const Sgd& kernel) {
  core::dispatch_floating(kernel.dtype, "SGD", [&]<class T>() {
    using C = ComputeType<T>;
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* buffer = static_cast<T*>(kernel.momentum_buffer);
    const C lr = static_cast<C>(kernel.state->learning_rate);
    const C momentum = static_cast<C>(kernel.momentum);
    const C decay = static_cast<C>(kernel.weight_decay);
    const bool first = kernel.state->step == 1;
    const C keep = first ? C(0) : momentum;
    const C take = first ? C(1) : static_cast<C>(1 - kernel.dampening);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      if (buffer == nullptr) {
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) {
          param[i] = T(param[i] - lr * (grad[i] + decay * param[i]));
        }
        return;
      }
      const C ahead = kernel.nesterov ? momentum : C(1);
      const C now = kernel.nesterov ? C(1) : C(0);
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const C g = grad[i] + decay * param[i];
        buffer[i] = T(keep * buffer[i] + take * g);
        param[i] = T(param[i] - lr * (now * g + ahead * buffer[i]));
      }
    });
  });
}

void run(OnCpu, Context&, const Adam& kernel) {
  core::dispatch_floating(kernel.dtype, "Adam", [&]<class T>() {
    using C = ComputeType<T>;
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* m = static_cast<T*>(kernel.exp_avg);
    T* v = static_cast<T*>(kernel.exp_avg_sq);
    const double lr = kernel.state->learning_rate;
    const auto step = static_cast<double>(kernel.state->step);
    const double correction1 = 1 - std::pow(kernel.beta1, step);
    const C step_size = static_cast<C>(lr / correction1);
    const C root2 = static_cast<C>(1 / std::sqrt(1 - std::pow(kernel.beta2, step)));
    const C beta1 = static_cast<C>(kernel.beta1);
    const C beta2 = static_cast<C>(kernel.beta2);
    const C rest1 = static_cast<C>(1 - kernel.beta1);
    const C rest2 = static_cast<C>(1 - kernel.beta2);
    const C eps = static_cast<C>(kernel.eps);
    const C shrink = kernel.decoupled ? static_cast<C>(1 - lr * kernel.weight_decay) : C(1);
    const C decay = kernel.decoupled ? C(0) : static_cast<C>(kernel.weight_decay);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const C p = param[i] * shrink;
        const C g = grad[i] + decay * p;
        m[i] = T(beta1 * m[i] + rest1 * g);
        v[i] = T(beta2 * v[i] + rest2 * g * g);
        param[i] = T(p - step_size * m[i] / (std::sqrt(C(v[i])) * root2 + eps));
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
    using C = ComputeType<T>;
    T* values = static_cast<T*>(kernel.values);
    core::parallel_for(kernel.count, cpu::kElementChunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        values[i] = C(values[i]) == C(0) ? values[i] : T(values[i] * static_cast<C>(factor));
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
