#include <tandem/kernels/optimizer.h>

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

}  // namespace

void run(OnCpu, Context&, const Sgd& kernel) {
  dispatch_step(kernel.dtype, "SGD", kernel.maximize, [&]<class T, bool kMaximize>() {
    using C = ComputeType<T>;
    const cpu::SgdLoop<T> loop{.param = static_cast<T*>(kernel.param),
                               .grad = static_cast<const T*>(kernel.grad),
                               .buffer = static_cast<T*>(kernel.momentum_buffer),
                               .factors = formula::factors<C>(kernel, *kernel.state)};
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
    const cpu::AdamLoop<T> loop{.param = static_cast<T*>(kernel.param),
                                .grad = static_cast<const T*>(kernel.grad),
                                .m = static_cast<T*>(kernel.exp_avg),
                                .v = static_cast<T*>(kernel.exp_avg_sq),
                                .largest = static_cast<T*>(kernel.max_exp_avg_sq),
                                .factors = formula::factors<C>(kernel, *kernel.state)};
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
    const auto by = formula::factors<C>(kernel, *kernel.state);
    const auto update = [=]<bool kCentered, bool kMomentum>(std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        formula::rms_prop<kCentered, kMomentum>(by, cpu::downhill<kMaximize>(C(grad[i])), param[i], square[i],
                                                kCentered ? mean[i] : square[i], kMomentum ? buffer[i] : square[i]);
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
    const auto by = formula::factors<C>(kernel, *kernel.state);
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        formula::adagrad(by, cpu::downhill<kMaximize>(C(grad[i])), param[i], sum[i]);
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
