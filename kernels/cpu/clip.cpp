#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/clip.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kPowers = 256;  // elements whose powers are computed at a time

// powers[i] = values[i]^exponent. Products are computed in vectors, and std::pow takes some twenty times as long.
// Changes the values.
void whole_powers(double (&values)[kPowers], unsigned exponent, double (&powers)[kPowers]) {
  std::fill_n(powers, kPowers, 1.0);
  while (true) {
    if (exponent % 2 == 1) {
      for (std::int64_t i = 0; i < kPowers; ++i) {
        powers[i] *= values[i];
      }
    }
    exponent /= 2;
    if (exponent == 0) {
      return;
    }
    for (double& value : values) {
      value *= value;
    }
  }
}

template <class T>
double sum_of_powers(const T* values, std::int64_t count, double power) {
  constexpr double kLargestWhole = 64;  // rounding errors grow with the power
  const bool is_whole = power >= 1 && power <= kLargestWhole && power == std::floor(power);
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  double magnitudes[kPowers] = {};
  double powers[kPowers] = {};
  for (std::int64_t first = 0; first < count; first += kPowers) {
    const std::int64_t here = std::min(kPowers, count - first);
    for (std::int64_t i = 0; i < here; ++i) {
      magnitudes[i] = std::abs(static_cast<double>(values[first + i]));
    }
    std::fill(magnitudes + here, magnitudes + kPowers, 0.0);
    if (is_whole) {
      whole_powers(magnitudes, static_cast<unsigned>(power), powers);
    } else {
      std::transform(magnitudes, magnitudes + here, powers, [power](double value) { return std::pow(value, power); });
      std::fill(powers + here, powers + kPowers, 0.0);
    }
    for (std::int64_t i = 0; i < kPowers; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += powers[i + lane];
      }
    }
  }
  return std::accumulate(lanes, lanes + kLanes, 0.0);
}

}  // namespace

void run(OnCpu, Context& context, const SquaredNorm& kernel) {
  core::dispatch_floating(kernel.dtype, "clip_grad_norm_", [&]<class T>() {
    const T* values = static_cast<const T*>(kernel.values);
    const double before = kernel.accumulate == Accumulate::yes ? *kernel.total : 0.0;
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<T, float>) {
        return TANDEM_BY_ISA(sum_of_squares)(values + begin, end - begin);
      }
      if constexpr (cpu::kPiecesPay<T>) {
        double total = 0;
        cpu::for_each_piece(values + begin, end - begin, [&](const float* floats, std::int64_t, std::int64_t count) {
          total += TANDEM_BY_ISA(sum_of_squares)(floats, count);
        });
        return total;
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
      if (!largest) {
        return sum_of_powers(values + begin, end - begin, kernel.power);
      }
      double most = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        most = join(most, std::abs(static_cast<double>(values[i])));
      }
      return most;
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
