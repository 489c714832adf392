#include <tandem/kernels/optimizer.h>

#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/optimizer_loops.h>

namespace tandem::inline v0::kernels {

namespace {

// The parameters of a small model stay in one core's cache, unless replicas have already spread them over several
// cores.
std::int64_t grain_of(std::int64_t count) {
  const bool shared = count >= kSharedUpdate || core::ThreadPool::instance().had_lanes();
  return shared ? cpu::element_grain(count) : count;
}

void run_f32(const cpu::SgdLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  TANDEM_BY_ISA(sgd_f32)(loop, scaled, begin, end);
}
void run_f32(const cpu::AdamLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  TANDEM_BY_ISA(adam_f32)(loop, scaled, begin, end);
}
void run_f32(const cpu::RmsPropLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  TANDEM_BY_ISA(rmsprop_f32)(loop, scaled, begin, end);
}
void run_f32(const cpu::AdagradLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end) {
  TANDEM_BY_ISA(adagrad_f32)(loop, scaled, begin, end);
}

// Runs Loop over all elements. The loop consists of the fields that every kernel has and the arrays kept per element.
template <template <class, class> class Loop, class Kernel, class... Kept>
void update(const Kernel& kernel, Kept... kept) {
  const auto run_loop = [&]<class T, class S>(void* param, T* rounded) {
    const auto step = formula::update<ComputeType<S>>(kernel, *kernel.state);
    if (step.skip) {
      return;
    }
    const Loop<T, S> loop{{static_cast<S*>(param), static_cast<const T*>(kernel.grad), rounded, step},
                          static_cast<S*>(kept)...};
    const bool scaled = step.gradient != 1;
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        run_f32(loop, scaled, begin, end);
      } else if constexpr (is_16_bit<T> && std::is_same_v<S, float>) {
        // The master in f32 takes the step, a piece at a time.
        cpu::for_each_piece(loop.grad + begin, end - begin, [&](float* grad, std::int64_t first, std::int64_t count) {
          const std::int64_t at = begin + first;
#pragma GCC ivdep
          for (std::int64_t i = at; i < at + count; ++i) {
            loop.current(i);  // unless the parameter was written since
          }
          const auto moved = [&](void* array) { return array == nullptr ? nullptr : static_cast<float*>(array) + at; };
          run_f32(Loop<float, float>{{loop.param + at, grad, nullptr, step}, moved(kept)...}, scaled, 0, count);
          cpu::narrow(rounded + at, loop.param + at, count);
        });
      } else {
        scaled ? loop.template run<true>(begin, end) : loop.template run<false>(begin, end);
      }
    });
  };
  core::dispatch_floating(kernel.dtype, Kernel::kName, [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (kernel.master != nullptr) {
        return run_loop.template operator()<T, float>(kernel.master, static_cast<T*>(kernel.param));
      }
    }
    run_loop.template operator()<T, T>(kernel.param, nullptr);
  });
}

}  // namespace

void run(OnCpu, Context&, const Sgd& kernel) { update<cpu::SgdLoop>(kernel, kernel.momentum_buffer); }
void run(OnCpu, Context&, const Adam& kernel) {
  update<cpu::AdamLoop>(kernel, kernel.exp_avg, kernel.exp_avg_sq, kernel.max_exp_avg_sq);
}
void run(OnCpu, Context&, const RmsProp& kernel) {
  update<cpu::RmsPropLoop>(kernel, kernel.square_avg, kernel.grad_avg, kernel.momentum_buffer);
}
void run(OnCpu, Context&, const Adagrad& kernel) { update<cpu::AdagradLoop>(kernel, kernel.sum); }

void run(OnCpu, Context&, const MovingAverage& kernel) {
  core::dispatch_floating(kernel.dtype, "EMA", [&]<class T>() {
    using C = ComputeType<T>;
    T* average = static_cast<T*>(kernel.average);
    const T* values = static_cast<const T*>(kernel.values);
    const C decay = static_cast<C>(kernel.decay);
    const C rest = static_cast<C>(1 - kernel.decay);
    core::parallel_for(kernel.count, grain_of(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        return TANDEM_BY_ISA(move_average)(average + begin, values + begin, decay, rest, end - begin);
      }
      if constexpr (is_16_bit<T>) {
        return cpu::change_pieces(average + begin, end - begin,
                                  [&](float* averages, std::int64_t first, std::int64_t count) {
                                    float floats[cpu::kHalfPiece];
                                    cpu::widen(floats, values + begin + first, count);
                                    TANDEM_BY_ISA(move_average)(averages, floats, decay, rest, count);
                                  });
      }
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        average[i] = T(decay * average[i] + rest * values[i]);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
