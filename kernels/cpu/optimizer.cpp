#include <tandem/kernels/optimizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/optimizer_loops.h>

namespace tandem::inline v0::kernels {

namespace {

// By the element type and the direction: a sign in the loop would cost a tenth of the time while data is in cache.
template <class Body>
void dispatch_step(DType dtype, const char* op, bool maximize, Body&& body) {
  core::dispatch_floating(dtype, op, [&]<class T>() {
    maximize ? body.template operator()<T, true>() : body.template operator()<T, false>();
  });
}

std::int64_t grain_of(std::int64_t count) { return count < kSharedUpdate ? count : cpu::kElementChunk; }

// A quotient 0 / 0 is to be 0, also without eps: what has never had a gradient stays as it is, and with it the gaps of
// a ParameterStore. The smallest normal number is lost in the root of any other second moment.
template <class T>
T positive(double eps) {
  return std::max(static_cast<T>(eps), std::numeric_limits<T>::min());
}

}  // namespace

void run(OnCpu, Context&, const Sgd& kernel) {
  dispatch_step(kernel.dtype, "SGD", kernel.maximize, [&]<class T, bool kMaximize>() {
    using C = ComputeType<T>;
    const bool first = kernel.state->step == 1;
    const C momentum = static_cast<C>(kernel.momentum);
    const cpu::SgdLoop<T> loop{.param = static_cast<T*>(kernel.param),
                               .grad = static_cast<const T*>(kernel.grad),
                               .buffer = static_cast<T*>(kernel.momentum_buffer),
                               .lr = static_cast<C>(kernel.state->learning_rate),
                               .decay = static_cast<C>(kernel.weight_decay),
                               .keep = first ? C(0) : momentum,
                               .take = first ? C(1) : static_cast<C>(1 - kernel.dampening),
                               .ahead = kernel.nesterov ? momentum : C(1),
                               .now = kernel.nesterov ? C(1) : C(0)};
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(sgd_f32)(loop, kMaximize, begin, end);
      } else {
        loop.template run<kMaximize>(begin, end);
      }
    });
  });
}

void run(OnCpu, Context&, const Adam& kernel) {
  dispatch_step(kernel.dtype, "Adam", kernel.maximize, [&]<class T, bool kMaximize>() {
    using C = ComputeType<T>;
    const double lr = kernel.state->learning_rate;
    const auto step = static_cast<double>(kernel.state->step);
    const double correction1 = 1 - std::pow(kernel.beta1, step);
    const cpu::AdamLoop<T> loop{.param = static_cast<T*>(kernel.param),
                                .grad = static_cast<const T*>(kernel.grad),
                                .m = static_cast<T*>(kernel.exp_avg),
                                .v = static_cast<T*>(kernel.exp_avg_sq),
                                .largest = static_cast<T*>(kernel.max_exp_avg_sq),
                                .step_size = static_cast<C>(lr / correction1),
                                .root2 = static_cast<C>(1 / std::sqrt(1 - std::pow(kernel.beta2, step))),
                                .beta1 = static_cast<C>(kernel.beta1),
                                .beta2 = static_cast<C>(kernel.beta2),
                                .rest1 = static_cast<C>(1 - kernel.beta1),
                                .rest2 = static_cast<C>(1 - kernel.beta2),
                                .eps = positive<C>(kernel.eps),
                                .shrink = kernel.decoupled ? static_cast<C>(1 - lr * kernel.weight_decay) : C(1),
                                .decay = kernel.decoupled ? C(0) : static_cast<C>(kernel.weight_decay)};
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        TANDEM_BY_ISA(adam_f32)(loop, kMaximize, begin, end);
      } else {
        loop.template run<kMaximize>(begin, end);
      }
    });
  });
}

void run(OnCpu, Context&, const RmsProp& kernel) {
  dispatch_step(kernel.dtype, "RMSprop", kernel.maximize, [&]<class T, bool kMaximize>() {
    using C = ComputeType<T>;
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* square = static_cast<T*>(kernel.square_avg);
    T* mean = static_cast<T*>(kernel.grad_avg);
    T* buffer = static_cast<T*>(kernel.momentum_buffer);
    const C lr = static_cast<C>(kernel.state->learning_rate);
    const C alpha = static_cast<C>(kernel.alpha);
    const C rest = static_cast<C>(1 - kernel.alpha);
    const C eps = positive<C>(kernel.eps);
    const C decay = static_cast<C>(kernel.weight_decay);
    const C momentum = static_cast<C>(kernel.momentum);
    const auto update = [=]<bool kCentered, bool kMomentum>(std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const C g = cpu::downhill<kMaximize>(C(grad[i])) + decay * param[i];
        C variance = alpha * square[i] + rest * g * g;
        square[i] = T(variance);
        if constexpr (kCentered) {
          mean[i] = T(alpha * mean[i] + rest * g);
          variance -= mean[i] * mean[i];
          variance = variance < C(0) ? C(0) : variance;  // by rounding; the root would be no number
        }
        C step = g / (std::sqrt(variance) + eps);
        if constexpr (kMomentum) {
          step = momentum * buffer[i] + step;
          buffer[i] = T(step);
        }
        param[i] = T(param[i] - lr * step);
      }
    };
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if (mean == nullptr) {
        buffer == nullptr ? update.template operator()<false, false>(begin, end)
                          : update.template operator()<false, true>(begin, end);
      } else {
        buffer == nullptr ? update.template operator()<true, false>(begin, end)
                          : update.template operator()<true, true>(begin, end);
      }
    });
  });
}

void run(OnCpu, Context&, const Adagrad& kernel) {
  dispatch_step(kernel.dtype, "Adagrad", kernel.maximize, [&]<class T, bool kMaximize>() {
    using C = ComputeType<T>;
    T* param = static_cast<T*>(kernel.param);
    const T* grad = static_cast<const T*>(kernel.grad);
    T* sum = static_cast<T*>(kernel.sum);
    const auto steps_before = static_cast<double>(kernel.state->step - 1);
    const C lr = static_cast<C>(kernel.state->learning_rate / (1 + steps_before * kernel.lr_decay));
    const C eps = positive<C>(kernel.eps);
    const C decay = static_cast<C>(kernel.weight_decay);
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const C g = cpu::downhill<kMaximize>(C(grad[i])) + decay * param[i];
        sum[i] = T(sum[i] + g * g);
        param[i] = T(param[i] - lr * g / (std::sqrt(C(sum[i])) + eps));
      }
    });
  });
}

void run(OnCpu, Context&, const MovingAverage& kernel) {
  core::dispatch_floating(kernel.dtype, "EMA", [&]<class T>() {
    using C = ComputeType<T>;
    T* average = static_cast<T*>(kernel.average);
    const T* values = static_cast<const T*>(kernel.values);
    const C decay = static_cast<C>(kernel.decay);
    const C rest = static_cast<C>(1 - kernel.decay);
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        average[i] = T(decay * average[i] + rest * values[i]);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
