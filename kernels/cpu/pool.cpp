#include <tandem/kernels/pool.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/pool_rows.h>
#include <tandem/kernels/scratch.h>

// Pooling, a plane at a time. Gradients go from the windows to their elements in the order of the windows, and one
// thread has all windows of a plane.

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kChunk = 16384;  // elements

// Calls body(plane) for all planes.
template <class Body>
void for_each_plane(const PoolShape& shape, Body&& body) {
  const std::int64_t grain = 1 + kChunk / (shape.in_plane() + 1);
  core::parallel_for(shape.planes, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      body(plane);
    }
  });
}

// Calls body(output, y range, x range) for all windows.
template <class Body>
void for_each_window(const PoolShape& shape, Body&& body) {
  for (std::int64_t y = 0; y < shape.out[0]; ++y) {
    const PoolShape::Range rows = shape.range(0, y);
    for (std::int64_t x = 0; x < shape.out[1]; ++x) {
      body(y * shape.out[1] + x, rows, shape.range(1, x));
    }
  }
}

// Whether every window is two by two, and the next one follows at once.
bool is_halving(const PoolShape& shape) {
  const std::array<std::int64_t, 2> two{2, 2};
  return !shape.adaptive && shape.window == two && shape.stride == two && shape.padding[0] == 0 &&
         shape.padding[1] == 0 && shape.dilation[0] == 1 && shape.dilation[1] == 1 && shape.in[0] >= 2 * shape.out[0] &&
         shape.in[1] >= 2 * shape.out[1];
}

// Windows of 16 bits that are widened at a time.
constexpr std::int64_t kPiece = 256;

// Calls body(part, first window) for parts of two rows.
template <class Body>
void for_each_part(const cpu::HalvedRows& rows, Body&& body) {
  for (std::int64_t x = 0; x < rows.count; x += kPiece) {
    body(cpu::HalvedRows{std::min(kPiece, rows.count - x), rows.place + static_cast<std::int32_t>(2 * x), rows.width},
         x);
  }
}

template <class T>
void halve_rows(const cpu::HalvedRows& rows, const T* upper, const T* lower, T* out, std::int32_t* places) {
  if constexpr (std::is_same_v<T, float>) {
    return TANDEM_BY_ISA(max_of_halves_f32)(rows, upper, lower, out, places);
  }
  if constexpr (is_16_bit<T>) {
    float above[2 * kPiece];
    float below[2 * kPiece];
    float largest[kPiece];
    return for_each_part(rows, [&](const cpu::HalvedRows& part, std::int64_t x) {
      cpu::widen(above, upper + 2 * x, 2 * part.count);
      cpu::widen(below, lower + 2 * x, 2 * part.count);
      TANDEM_BY_ISA(max_of_halves_f32)(part, above, below, largest, places + x);
      cpu::narrow(out + x, largest, part.count);
    });
  }
  using C = ComputeType<T>;
  for (std::int64_t x = 0; x < rows.count; ++x) {
    const std::int32_t at = rows.place + static_cast<std::int32_t>(2 * x);
    const C values[4] = {C(upper[2 * x]), C(upper[2 * x + 1]), C(lower[2 * x]), C(lower[2 * x + 1])};
    const std::int32_t where[4] = {at, at + 1, at + rows.width, at + rows.width + 1};
    int chosen = 0;
    for (int i = 1; i < 4; ++i) {
      chosen = values[i] > values[chosen] || values[i] != values[i] ? i : chosen;
    }
    out[x] = T(values[chosen]);
    places[x] = where[chosen];
  }
}

template <class T>
void max_pool(const MaxPool& kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  const bool halves = is_halving(shape);
  const auto width = static_cast<std::int32_t>(shape.in[1]);
  for_each_plane(shape, [&](std::int64_t plane) {
    const T* in = static_cast<const T*>(kernel.in) + plane * shape.in_plane();
    T* out = static_cast<T*>(kernel.out) + plane * shape.out_plane();
    std::int32_t* places = kernel.places + plane * shape.out_plane();
    if (halves) {
      for (std::int64_t y = 0; y < shape.out[0]; ++y) {
        const T* upper = in + 2 * y * shape.in[1];
        const cpu::HalvedRows rows{shape.out[1], static_cast<std::int32_t>(2 * y) * width, width};
        halve_rows(rows, upper, upper + shape.in[1], out + y * shape.out[1], places + y * shape.out[1]);
      }
      return;
    }
    for_each_window(shape, [&](std::int64_t output, const PoolShape::Range& rows, const PoolShape::Range& columns) {
      std::int64_t chosen = rows.begin * shape.in[1] + columns.begin;
      C largest = C(in[chosen]);
      for (std::int64_t y = rows.begin; y < rows.end; y += rows.step) {
        for (std::int64_t x = columns.begin; x < columns.end; x += columns.step) {
          const std::int64_t at = y * shape.in[1] + x;
          const C value = C(in[at]);
          if (value > largest || value != value) {
            largest = value;
            chosen = at;
          }
        }
      }
      out[output] = T(largest);
      places[output] = static_cast<std::int32_t>(chosen);
    });
  });
}

// Lets `add_to(sums)` add to a plane of the gradient; in 16 bits, to a plane of f32 that is rounded once.
template <class T, class AddTo>
void gradient_of_plane(Device device, const PoolShape& shape, Accumulate accumulate, T* in_grad, AddTo&& add_to) {
  const std::int64_t count = shape.in_plane();
  if constexpr (!is_16_bit<T>) {
    if (accumulate == Accumulate::no) {
      std::fill_n(in_grad, count, T(0));
    }
    add_to(in_grad);
  } else {
    ScratchArena& scratch = context_for(device).scratch;
    const ScratchScope scope(scratch);
    float* const sums = scratch.allocate_array<float>(static_cast<std::size_t>(count));
    std::fill_n(sums, count, 0.0F);
    add_to(sums);
    for (std::int64_t i = 0; i < count; ++i) {
      in_grad[i] = T(accumulate == Accumulate::yes ? static_cast<float>(in_grad[i]) + sums[i] : sums[i]);
    }
  }
}

// Lets write(y, upper, lower) write the gradients of the two rows of each row of outputs, and zeros to the rest of the
// plane.
template <class T, class Write>
void double_rows(const PoolShape& shape, T* in_grad, Write&& write) {
  for (std::int64_t y = 0; y < shape.out[0]; ++y) {
    T* upper = in_grad + 2 * y * shape.in[1];
    T* lower = upper + shape.in[1];
    write(y, upper, lower);
    std::fill(upper + 2 * shape.out[1], lower, T(0));
    std::fill(lower + 2 * shape.out[1], lower + shape.in[1], T(0));
  }
  std::fill(in_grad + 2 * shape.out[0] * shape.in[1], in_grad + shape.in_plane(), T(0));
}

// Each of a window's four elements looks whether it was chosen.
template <class T>
void halve_rows_back(const cpu::HalvedRows& rows, const T* grad, const std::int32_t* places, T* upper, T* lower) {
  if constexpr (std::is_same_v<T, float>) {
    return TANDEM_BY_ISA(max_of_halves_grad_f32)(rows, grad, places, upper, lower);
  }
  if constexpr (is_16_bit<T>) {
    float given[kPiece];
    float above[2 * kPiece];
    float below[2 * kPiece];
    return for_each_part(rows, [&](const cpu::HalvedRows& part, std::int64_t x) {
      cpu::widen(given, grad + x, part.count);
      TANDEM_BY_ISA(max_of_halves_grad_f32)(part, given, places + x, above, below);
      cpu::narrow(upper + 2 * x, above, 2 * part.count);
      cpu::narrow(lower + 2 * x, below, 2 * part.count);
    });
  }
  for (std::int64_t x = 0; x < rows.count; ++x) {
    const std::int32_t chosen = places[x] - rows.place - static_cast<std::int32_t>(2 * x);
    upper[2 * x] = chosen == 0 ? grad[x] : T(0);
    upper[2 * x + 1] = chosen == 1 ? grad[x] : T(0);
    lower[2 * x] = chosen == rows.width ? grad[x] : T(0);
    lower[2 * x + 1] = chosen == rows.width + 1 ? grad[x] : T(0);
  }
}

template <class T>
void max_pool_grad(Device device, const MaxPoolGrad& kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  const bool halves = is_halving(shape) && kernel.accumulate == Accumulate::no;
  const auto width = static_cast<std::int32_t>(shape.in[1]);
  for_each_plane(shape, [&](std::int64_t plane) {
    const T* grad = static_cast<const T*>(kernel.grad) + plane * shape.out_plane();
    const std::int32_t* places = kernel.places + plane * shape.out_plane();
    T* in_grad = static_cast<T*>(kernel.in_grad) + plane * shape.in_plane();
    if (halves) {
      return double_rows(shape, in_grad, [&](std::int64_t y, T* upper, T* lower) {
        const cpu::HalvedRows rows{shape.out[1], static_cast<std::int32_t>(2 * y) * width, width};
        halve_rows_back(rows, grad + y * shape.out[1], places + y * shape.out[1], upper, lower);
      });
    }
    gradient_of_plane(device, shape, kernel.accumulate, in_grad, [&](auto* sums) {
      for (std::int64_t output = 0; output < shape.out_plane(); ++output) {
        sums[places[output]] += C(grad[output]);
      }
    });
  });
}

// The windows along one dimension, and their lengths, for the first kKept of them.
constexpr std::int64_t kKept = 4096;
struct Window {
  PoolShape::Range range;
  std::int64_t length;
};

const Window* windows(ScratchArena& scratch, const PoolShape& shape, const Divisor& divisor, int dim) {
  const std::int64_t count = std::min(kKept, shape.out[static_cast<std::size_t>(dim)]);
  Window* const all = scratch.allocate_array<Window>(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    all[i] = {shape.range(dim, i), divisor.length(shape, dim, i)};
  }
  return all;
}

// Calls body(output, y range, x range, divisor) for all windows of a mean.
template <class C, class Body>
void for_each_mean(const PoolShape& shape, const Divisor& divisor, const Window* rows, const Window* columns,
                   Body&& body) {
  const auto window = [&](const Window* kept, int dim, std::int64_t i) {
    return i < kKept ? kept[i] : Window{shape.range(dim, i), divisor.length(shape, dim, i)};
  };
  for (std::int64_t y = 0; y < shape.out[0]; ++y) {
    const Window row = window(rows, 0, y);
    for (std::int64_t x = 0; x < shape.out[1]; ++x) {
      const Window column = window(columns, 1, x);
      const std::int64_t size = divisor.override != 0 ? divisor.override : row.length * column.length;
      body(y * shape.out[1] + x, row.range, column.range, static_cast<C>(size));
    }
  }
}

// Whether windows of f32 or 16 bits are halves, for which there are vector loops. Their divisors are equal, because
// none reaches beyond the plane.
template <class T>
bool has_halves(const PoolShape& shape) {
  return !std::is_same_v<T, double> && is_halving(shape);
}

template <class T>
void mean_of_halves(std::int64_t count, float divisor, const T* upper, const T* lower, T* out) {
  if constexpr (std::is_same_v<T, float>) {
    TANDEM_BY_ISA(mean_of_halves_f32)(count, divisor, upper, lower, out);
  } else if constexpr (is_16_bit<T>) {
    float above[2 * kPiece];
    float below[2 * kPiece];
    float mean[kPiece];
    for_each_part({count, 0, 0}, [&](const cpu::HalvedRows& part, std::int64_t x) {
      cpu::widen(above, upper + 2 * x, 2 * part.count);
      cpu::widen(below, lower + 2 * x, 2 * part.count);
      TANDEM_BY_ISA(mean_of_halves_f32)(part.count, divisor, above, below, mean);
      cpu::narrow(out + x, mean, part.count);
    });
  }
}

template <class T>
void mean_of_halves_back(std::int64_t count, float divisor, const T* grad, T* upper, T* lower) {
  if constexpr (std::is_same_v<T, float>) {
    TANDEM_BY_ISA(mean_of_halves_grad_f32)(count, divisor, grad, upper, lower);
  } else if constexpr (is_16_bit<T>) {
    float given[kPiece];
    float above[2 * kPiece];
    float below[2 * kPiece];
    for_each_part({count, 0, 0}, [&](const cpu::HalvedRows& part, std::int64_t x) {
      cpu::widen(given, grad + x, part.count);
      TANDEM_BY_ISA(mean_of_halves_grad_f32)(part.count, divisor, given, above, below);
      cpu::narrow(upper + 2 * x, above, 2 * part.count);
      cpu::narrow(lower + 2 * x, below, 2 * part.count);
    });
  }
}

template <class T>
void avg_pool(Context& context, const AvgPool& kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  if (has_halves<T>(shape)) {
    const auto divisor = static_cast<float>(kernel.divisor.at(shape, 0, 0));
    return for_each_plane(shape, [&](std::int64_t plane) {
      const T* in = static_cast<const T*>(kernel.in) + plane * shape.in_plane();
      T* out = static_cast<T*>(kernel.out) + plane * shape.out_plane();
      for (std::int64_t y = 0; y < shape.out[0]; ++y) {
        const T* upper = in + 2 * y * shape.in[1];
        mean_of_halves(shape.out[1], divisor, upper, upper + shape.in[1], out + y * shape.out[1]);
      }
    });
  }
  const ScratchScope scope(context.scratch);
  const Window* const all_rows = windows(context.scratch, shape, kernel.divisor, 0);
  const Window* const all_columns = windows(context.scratch, shape, kernel.divisor, 1);
  for_each_plane(shape, [&](std::int64_t plane) {
    const T* in = static_cast<const T*>(kernel.in) + plane * shape.in_plane();
    T* out = static_cast<T*>(kernel.out) + plane * shape.out_plane();
    for_each_mean<C>(
        shape, kernel.divisor, all_rows, all_columns,
        [&](std::int64_t output, const PoolShape::Range& rows, const PoolShape::Range& columns, C divisor) {
          C sum(0);
          for (std::int64_t y = rows.begin; y < rows.end; ++y) {
            for (std::int64_t x = columns.begin; x < columns.end; ++x) {
              sum += C(in[y * shape.in[1] + x]);
            }
          }
          out[output] = T(sum / divisor);
        });
  });
}

template <class T>
void avg_pool_grad(Context& context, const AvgPoolGrad& kernel) {
  using C = ComputeType<T>;
  const PoolShape& shape = kernel.shape;
  if (has_halves<T>(shape) && kernel.accumulate == Accumulate::no) {
    const auto divisor = static_cast<float>(kernel.divisor.at(shape, 0, 0));
    return for_each_plane(shape, [&](std::int64_t plane) {
      const T* grad = static_cast<const T*>(kernel.grad) + plane * shape.out_plane();
      double_rows(shape, static_cast<T*>(kernel.in_grad) + plane * shape.in_plane(),
                  [&](std::int64_t y, T* upper, T* lower) {
                    mean_of_halves_back(shape.out[1], divisor, grad + y * shape.out[1], upper, lower);
                  });
    });
  }
  const Device device = context.device;
  const ScratchScope scope(context.scratch);
  const Window* const all_rows = windows(context.scratch, shape, kernel.divisor, 0);
  const Window* const all_columns = windows(context.scratch, shape, kernel.divisor, 1);
  for_each_plane(shape, [&](std::int64_t plane) {
    const T* grad = static_cast<const T*>(kernel.grad) + plane * shape.out_plane();
    T* in_grad = static_cast<T*>(kernel.in_grad) + plane * shape.in_plane();
    gradient_of_plane(device, shape, kernel.accumulate, in_grad, [&](C* sums) {
      for_each_mean<C>(
          shape, kernel.divisor, all_rows, all_columns,
          [&](std::int64_t output, const PoolShape::Range& rows, const PoolShape::Range& columns, C divisor) {
            const C part = C(grad[output]) / divisor;
            for (std::int64_t y = rows.begin; y < rows.end; ++y) {
              for (std::int64_t x = columns.begin; x < columns.end; ++x) {
                sums[y * shape.in[1] + x] += part;
              }
            }
          });
    });
  });
}

}  // namespace

void run(OnCpu, Context&, const MaxPool& kernel) {
  core::dispatch_floating(kernel.dtype, "max_pool", [&]<class T>() { max_pool<T>(kernel); });
}

void run(OnCpu, Context& context, const MaxPoolGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "max_pool", [&]<class T>() { max_pool_grad<T>(context.device, kernel); });
}

void run(OnCpu, Context& context, const AvgPool& kernel) {
  core::dispatch_floating(kernel.dtype, "avg_pool", [&]<class T>() { avg_pool<T>(context, kernel); });
}

void run(OnCpu, Context& context, const AvgPoolGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "avg_pool", [&]<class T>() { avg_pool_grad<T>(context, kernel); });
}

}  // namespace tandem::inline v0::kernels
