#include <cmath>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/dropout_rows.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/dropout.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kDropoutChunk =
    8192;  // elements that stay in cache; a multiple of 4, so that chunks share no block

// uniform_f32(number) >= p if and only if the upper 24 bits of the number are at least this threshold.
std::uint32_t threshold_of(double p) {
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(static_cast<float>(p)) * 0x1p24));
}

// p = 1 drops everything; 1 / (1 - p) must not turn that into NaN.
template <class T>
ComputeType<T> scale_of(double p) {
  return p < 1 ? static_cast<ComputeType<T>>(1 / (1 - p)) : ComputeType<T>(0);
}

template <class T>
void scale_masked(const T* in, const std::uint8_t* mask, T* out, std::int64_t count, double p, Accumulate accumulate) {
  const ComputeType<T> scale = scale_of<T>(p);
  if constexpr (std::is_same_v<T, float>) {
    TANDEM_BY_ISA(masked_scale_f32)({in, mask, out, count, scale, accumulate});
  } else if constexpr (is_16_bit<T>) {
    cpu::for_each_piece(in, count, [&](float* floats, std::int64_t first, std::int64_t here) {
      float sums[cpu::kHalfPiece];
      if (accumulate == Accumulate::yes) {
        cpu::widen(sums, out + first, here);
      }
      TANDEM_BY_ISA(masked_scale_f32)({floats, mask + first, sums, here, scale, accumulate});
      cpu::narrow(out + first, sums, here);
    });
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = mask[i] != 0 ? in[i] * scale : T(0);
      out[i] = T(accumulate == Accumulate::yes ? out[i] + value : value);
    }
  }
}

}  // namespace

void run(OnCpu, Context&, const Dropout& kernel) {
  const std::uint64_t base = kernel.state->random_offset + kernel.offset;
  core::dispatch_floating(kernel.dtype, "dropout", [&]<class T>() {
    const T* in = static_cast<const T*>(kernel.in);
    T* out = static_cast<T*>(kernel.out);
    core::parallel_for(kernel.count, kDropoutChunk, [&](std::int64_t begin, std::int64_t end) {
      std::uint8_t* mask = kernel.mask + begin;
      TANDEM_BY_ISA(keep_mask)
      ({.mask = mask,
        .count = end - begin,
        .key = kernel.seed,
        .counter = base + static_cast<std::uint64_t>(begin / 4),
        .threshold = threshold_of(kernel.p)});
      scale_masked(in + begin, mask, out + begin, end - begin, kernel.p, Accumulate::no);
    });
  });
}

void run(OnCpu, Context&, const DropoutGrad& kernel) {
  core::dispatch_floating(kernel.dtype, "dropout", [&]<class T>() {
    const T* grad = static_cast<const T*>(kernel.grad);
    T* out = static_cast<T*>(kernel.in_grad);
    core::parallel_for(kernel.count, cpu::element_grain(kernel.count), [&](std::int64_t begin, std::int64_t end) {
      scale_masked(grad + begin, kernel.mask + begin, out + begin, end - begin, kernel.p, kernel.accumulate);
    });
  });
}

}  // namespace tandem::inline v0::kernels
