#include <tandem/kernels/memory.h>

#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

// Two operand types: the row walker is typed by the output, so the input is stepped in bytes.
template <class Out, class In>
void copy_rows(const Copy& kernel) {
  const int last = kernel.loop.ndim - 1;
  Operand in = kernel.in;
  for (std::int64_t& stride : in.strides) {
    stride *= static_cast<std::int64_t>(sizeof(In));
  }
  Operand out = kernel.out;
  for (std::int64_t& stride : out.strides) {
    stride *= static_cast<std::int64_t>(sizeof(Out));
  }
  const std::int64_t in_stride = kernel.in.strides[last];
  const std::int64_t out_stride = kernel.out.strides[last];
  cpu::for_each_row<std::byte>(kernel.loop, {&out, &in}, [&](std::byte* const(&p)[2], std::int64_t count) {
    Out* to = reinterpret_cast<Out*>(p[0]);
    const In* from = reinterpret_cast<const In*>(p[1]);
    if (kernel.accumulate == Accumulate::yes) {
      if constexpr (!std::is_same_v<Out, bool>) {
        for (std::int64_t i = 0; i < count; ++i) {
          to[i * out_stride] = wrapping_add(to[i * out_stride], convert<Out>(from[i * in_stride]));
        }
      }
    } else if (in_stride == 1 && out_stride == 1) {
      if constexpr (std::is_same_v<In, Out>) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Out));
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          to[i] = convert<Out>(from[i]);
        }
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i * out_stride] = convert<Out>(from[i * in_stride]);
      }
    }
  });
}

}  // namespace

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

void run(OnCpu, Context&, const Copy& kernel) {
  core::dispatch_any(kernel.out_dtype, [&]<class Out>() {
    core::dispatch_any(kernel.in_dtype, [&]<class In>() { copy_rows<Out, In>(kernel); });
  });
}

}  // namespace tandem::inline v0::kernels
