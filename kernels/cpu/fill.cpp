#include <tandem/kernels/fill.h>

#include <algorithm>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

// out[i] = value(i) for i in [begin, end). Blocks are counted in 32 bits, which processors convert in vectors.
template <class T, class Value>
void fill_counted(T* out, std::int64_t begin, std::int64_t end, Value&& value) {
  constexpr std::int64_t kCountedBlock = 4096;
  for (std::int64_t first = begin; first < end; first += kCountedBlock) {
    const auto size = static_cast<std::int32_t>(std::min(kCountedBlock, end - first));
    const auto base = static_cast<double>(first);
    for (std::int32_t i = 0; i < size; ++i) {
      out[first + i] = convert<T>(value(base + static_cast<double>(i)));
    }
  }
}

}  // namespace

void run(OnCpu, Context&, const Fill& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    const T filled = convert<T>(kernel.value);
    const std::int64_t stride = kernel.out.strides[kernel.loop.ndim - 1];
    cpu::for_each_row<T>(kernel.loop, {&kernel.out}, [&](T* const(&p)[1], std::int64_t count) {
      T* out = p[0];
      const T value = filled;  // a copy that `out` cannot point to, so that it is read once
      if (stride == 1) {
        for (std::int64_t i = 0; i < count; ++i) {
          out[i] = value;
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          out[i * stride] = value;
        }
      }
    });
  });
}

void run(OnCpu, Context&, const Arange& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    fill_counted(static_cast<T*>(kernel.out), 0, kernel.count,
                 [start = kernel.start, step = kernel.step](double i) { return start + i * step; });
  });
}

void run(OnCpu, Context&, const Linspace& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    T* out = static_cast<T*>(kernel.out);
    const std::int64_t last = kernel.count - 1;
    const double step = last > 0 ? (kernel.end - kernel.start) / static_cast<double>(last) : 0;
    const std::int64_t middle = last == 0 ? 1 : kernel.count / 2;
    fill_counted(out, 0, std::min(middle, kernel.count),
                 [start = kernel.start, step](double i) { return start + i * step; });
    fill_counted(out, middle, kernel.count, [end = kernel.end, step, all = static_cast<double>(last)](double i) {
      return end - (all - i) * step;
    });
  });
}

}  // namespace tandem::inline v0::kernels
