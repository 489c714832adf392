#include <tandem/kernels/fill.h>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

void run(OnCpu, Context&, const Fill& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    const T value = convert<T>(kernel.value);
    const std::int64_t stride = kernel.out.strides[kernel.loop.ndim - 1];
    cpu::for_each_row<T>(kernel.loop, {&kernel.out}, [&](T* const(&p)[1], std::int64_t count) {
      T* out = p[0];
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
    T* out = static_cast<T*>(kernel.out);
    for (std::int64_t i = 0; i < kernel.count; ++i) {
      out[i] = convert<T>(kernel.start + static_cast<double>(i) * kernel.step);
    }
  });
}

void run(OnCpu, Context&, const Linspace& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    T* out = static_cast<T*>(kernel.out);
    const std::int64_t last = kernel.count - 1;
    const double step = last > 0 ? (kernel.end - kernel.start) / static_cast<double>(last) : 0;
    for (std::int64_t i = 0; i <= last; ++i) {
      const bool first_half = i < kernel.count / 2 || last == 0;
      out[i] = convert<T>(first_half ? kernel.start + static_cast<double>(i) * step
                                     : kernel.end - static_cast<double>(last - i) * step);
    }
  });
}

}  // namespace tandem::inline v0::kernels
