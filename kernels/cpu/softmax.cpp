#include <tandem/kernels/softmax.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/softmax_rows.h>

namespace tandem::inline v0::kernels {

namespace {

// Sums over a row are kept in f64. Among 10^5 classes f32 would lose three digits, and beside an exponential f64 costs
// nothing.

// Numerators of full-width types are kept in the output; 16-bit ones are computed again, so that they are rounded once.
template <class T>
void softmax_row(const T* in, T* out, std::int64_t stride, std::int64_t size, bool log) {
  using C = ComputeType<T>;
  C highest = in[0];
  for (std::int64_t i = 1; i < size; ++i) {
    highest = std::max<C>(highest, in[i * stride]);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const C e = std::exp(in[i * stride] - highest);
    sum += static_cast<double>(e);
    if constexpr (std::is_same_v<C, T>) {
      out[i * stride] = log ? in[i * stride] - highest : e;
    }
  }
  const C shift = log ? static_cast<C>(std::log(sum)) : 0;
  const C factor = log ? 1 : static_cast<C>(1 / sum);
  for (std::int64_t i = 0; i < size; ++i) {
    C value;
    if constexpr (std::is_same_v<C, T>) {
      value = out[i * stride];
    } else {
      value = log ? in[i * stride] - highest : std::exp(in[i * stride] - highest);
    }
    out[i * stride] = T((value - shift) * factor);
  }
}

template <class T>
void softmax_grad_row(const SoftmaxGrad& kernel, const T* grad, const T* y, T* out) {
  using C = ComputeType<T>;
  double total = 0;
  for (std::int64_t i = 0; i < kernel.size; ++i) {
    const std::int64_t at = i * kernel.inner;
    total += static_cast<double>(kernel.log ? C(grad[at]) : grad[at] * y[at]);
  }
  const C sum = static_cast<C>(total);
  for (std::int64_t i = 0; i < kernel.size; ++i) {
    const std::int64_t at = i * kernel.inner;
    const C value = kernel.log ? grad[at] - std::exp(C(y[at])) * sum : y[at] * (grad[at] - sum);
    out[at] = T(kernel.accumulate == Accumulate::yes ? out[at] + value : value);
  }
}

// Calls body(offset of the first element) for every row of a dense [outer, size, inner] tensor.
template <class Body>
void for_each_softmax_row(std::int64_t outer, std::int64_t size, std::int64_t inner, Body&& body) {
  if (size == 0) {
    return;
  }
  core::parallel_for(outer * inner, cpu::exponential_rows(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row / inner * size * inner + row % inner);
    }
  });
}

// Calls body(offset of the first element, columns) for neighbouring rows of a tensor whose `inner` is not 1.
template <class Body>
void for_neighbouring_rows(std::int64_t begin, std::int64_t end, std::int64_t size, std::int64_t inner, Body&& body) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t count = std::min(end - i, inner - i % inner);
    body(i / inner * size * inner + i % inner, count);
    i += count;
  }
}

// f32 is computed in vectors: along a dense row, else across neighbouring rows.
void softmax_f32(const Softmax& kernel) {
  const auto* in = static_cast<const float*>(kernel.in);
  auto* out = static_cast<float*>(kernel.out);
  const auto row = TANDEM_BY_ISA(softmax_row);
  const auto columns = TANDEM_BY_ISA(softmax_columns);
  const std::int64_t size = kernel.size;
  const std::int64_t inner = kernel.inner;
  core::parallel_for(kernel.outer * inner, cpu::exponential_rows(size), [&](std::int64_t begin, std::int64_t end) {
    if (inner == 1) {
      for (std::int64_t i = begin; i < end; ++i) {
        row(in + i * size, out + i * size, size, kernel.log);
      }
      return;
    }
    for_neighbouring_rows(begin, end, size, inner, [&](std::int64_t at, std::int64_t count) {
      columns(in + at, out + at, size, inner, count, kernel.log);
    });
  });
}

// Whether rows of 16 bits go through the vectors of f32: dense ones that fit in the second-level cache as floats.
bool takes_floats(std::int64_t size, std::int64_t inner) { return inner == 1 && size > 0 && size <= 65'536; }

// The results are rounded once.
template <class T>
void softmax_rows_16_bit(const Softmax& kernel) {
  const auto* in = static_cast<const T*>(kernel.in);
  auto* out = static_cast<T*>(kernel.out);
  const std::int64_t size = kernel.size;
  core::parallel_for(kernel.outer, cpu::exponential_rows(size), [&](std::int64_t begin, std::int64_t end) {
    ScratchArena& scratch = context_for(Device()).scratch;
    const ScratchScope scope(scratch);
    float* const floats = scratch.allocate_array<float>(static_cast<std::size_t>(2 * size));
    for (std::int64_t at = begin * size; at < end * size; at += size) {
      cpu::widen(floats, in + at, size);
      TANDEM_BY_ISA(softmax_row)(floats, floats + size, size, kernel.log);
      cpu::narrow(out + at, floats + size, size);
    }
  });
}

template <class T>
void softmax_grad_rows_16_bit(const SoftmaxGrad& kernel) {
  const std::int64_t size = kernel.size;
  core::parallel_for(kernel.outer, cpu::exponential_rows(size), [&](std::int64_t begin, std::int64_t end) {
    ScratchArena& scratch = context_for(Device()).scratch;
    const ScratchScope scope(scratch);
    float* const grad = scratch.allocate_array<float>(static_cast<std::size_t>(3 * size));
    float* const y = grad + size;
    float* const result = y + size;
    for (std::int64_t at = begin * size; at < end * size; at += size) {
      T* const out = static_cast<T*>(kernel.in_grad) + at;
      cpu::widen(grad, static_cast<const T*>(kernel.grad) + at, size);
      cpu::widen(y, static_cast<const T*>(kernel.out) + at, size);
      if (kernel.accumulate == Accumulate::yes) {
        cpu::widen(result, out, size);
      }
      TANDEM_BY_ISA(softmax_grad_row)(grad, y, result, size, kernel.log, kernel.accumulate);
      cpu::narrow(out, result, size);
    }
  });
}

void softmax_grad_f32(const SoftmaxGrad& kernel) {
  if (kernel.inner > 1) {
    const std::int64_t grain = cpu::exponential_rows(kernel.size);
    core::parallel_for(kernel.outer * kernel.inner, grain, [&](std::int64_t begin, std::int64_t end) {
      for_neighbouring_rows(begin, end, kernel.size, kernel.inner, [&](std::int64_t at, std::int64_t columns) {
        TANDEM_BY_ISA(softmax_grad_columns)
        ({.grad = static_cast<const float*>(kernel.grad) + at,
          .y = static_cast<const float*>(kernel.out) + at,
          .out = static_cast<float*>(kernel.in_grad) + at,
          .size = kernel.size,
          .stride = kernel.inner,
          .columns = columns,
          .log = kernel.log,
          .accumulate = kernel.accumulate});
      });
    });
    return;
  }
  const auto row = TANDEM_BY_ISA(softmax_grad_row);
  for_each_softmax_row(kernel.outer, kernel.size, 1, [&](std::int64_t at) {
    row(static_cast<const float*>(kernel.grad) + at, static_cast<const float*>(kernel.out) + at,
        static_cast<float*>(kernel.in_grad) + at, kernel.size, kernel.log, kernel.accumulate);
  });
}

}  // namespace

void run(OnCpu, Context&, const Softmax& kernel) {
  if (kernel.dtype == DType::f32 && kernel.size > 0) {
    return softmax_f32(kernel);
  }
  core::dispatch_floating(kernel.dtype, "softmax", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      if (takes_floats(kernel.size, kernel.inner)) {
        return softmax_rows_16_bit<T>(kernel);
      }
    }
    for_each_softmax_row(kernel.outer, kernel.size, kernel.inner, [&](std::int64_t at) {
      softmax_row(static_cast<const T*>(kernel.in) + at, static_cast<T*>(kernel.out) + at, kernel.inner, kernel.size,
                  kernel.log);
    });
  });
}

void run(OnCpu, Context&, const SoftmaxGrad& kernel) {
  if (kernel.dtype == DType::f32 && kernel.size > 0 && kernel.inner > 0) {
    return softmax_grad_f32(kernel);
  }
  core::dispatch_floating(kernel.dtype, "softmax", [&]<class T>() {
    if constexpr (is_16_bit<T>) {
      if (takes_floats(kernel.size, kernel.inner)) {
        return softmax_grad_rows_16_bit<T>(kernel);
      }
    }
    for_each_softmax_row(kernel.outer, kernel.size, kernel.inner, [&](std::int64_t at) {
      softmax_grad_row(kernel, static_cast<const T*>(kernel.grad) + at, static_cast<const T*>(kernel.out) + at,
                       static_cast<T*>(kernel.in_grad) + at);
    });
  });
}

}  // namespace tandem::inline v0::kernels
