#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/clip.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context& context, const SquaredNorm& kernel) {
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    const T* values = static_cast<const T*>(kernel.values);
    const double before = kernel.accumulate == Accumulate::yes ? *kernel.total : 0.0;
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        return TANDEM_BY_ISA(sum_of_squares)(values + begin, end - begin);
      }
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
      return sum;
    };
    *kernel.total = cpu::join_chunks(context.scratch, kernel.count, cpu::kElementChunk, before, part);
  });
}

void run(OnCpu, Context& context, const PowerNorm& kernel) {
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    const T* values = static_cast<const T*>(kernel.values);
    const bool largest = std::isinf(kernel.power);
    const auto join = [largest](double a, double b) {
      return !largest ? a + b : (a >= b || std::isnan(a) ? a : b);  // a NaN stays
    };
    const double before = kernel.accumulate == Accumulate::yes ? *kernel.total : 0.0;
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        if (largest || kernel.power == 1) {
          return (largest ? TANDEM_BY_ISA(largest_magnitude) : TANDEM_BY_ISA(sum_of_magnitudes))(values + begin,
                                                                                                 end - begin);
        }
      }
      double total = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = std::abs(static_cast<double>(values[i]));
        total = join(total, largest || kernel.power == 1 ? value : std::pow(value, kernel.power));
      }
      return total;
    };
    *kernel.total = cpu::join_chunks(context.scratch, kernel.count, cpu::kElementChunk, before, part, join);
  });
}

void run(OnCpu, Context&, const ClipByNorm& kernel) {
  const double factor = kernel.max_norm / (*kernel.norm + 1e-6);
  if (factor >= 1) {
    return;
  }
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    using C = ComputeType<T>;
    T* values = static_cast<T*>(kernel.values);
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        return TANDEM_BY_ISA(scale_nonzero)(values + begin, static_cast<float>(factor), end - begin);
      }
      if constexpr (is_16_bit<T>) {
        return cpu::change_pieces(values + begin, end - begin, [&](float* floats, std::int64_t, std::int64_t count) {
          TANDEM_BY_ISA(scale_nonzero)(floats, static_cast<float>(factor), count);
        });
      }
      for (std::int64_t i = begin; i < end; ++i) {
        values[i] = C(values[i]) == C(0) ? values[i] : T(values[i] * static_cast<C>(factor));
      }
    });
  });
}

void run(OnCpu, Context&, const ClipByValue& kernel) {
  core::dispatch_floating(kernel.dtype, "clip_grad_value_", [&]<class T>() {
    T* values = static_cast<T*>(kernel.values);
    using C = ComputeType<T>;
    const C limit = static_cast<C>(kernel.limit);
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        return TANDEM_BY_ISA(clamp_f32)(values + begin, limit, end - begin);
      }
      if constexpr (is_16_bit<T>) {
        return cpu::change_pieces(values + begin, end - begin, [&](float* floats, std::int64_t, std::int64_t count) {
          TANDEM_BY_ISA(clamp_f32)(floats, limit, count);
        });
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const C value = values[i];
        values[i] = T(value > limit ? limit : value < -limit ? -limit : value);
      }
    });
  });
}

}  // namespace tandem::inline v0::kernels
