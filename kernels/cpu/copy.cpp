#include <tandem/kernels/copy.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

template <class Out, class In>
void copy_row(void* out, const void* in, std::int64_t out_stride, std::int64_t in_stride, std::int64_t count,
              bool accumulate) {
  Out* to = static_cast<Out*>(out);
  const In* from = static_cast<const In*>(in);
  if (accumulate) {
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
}

}  // namespace

void run(OnCpu, Context&, const Copy& kernel) {
  // Looks up the row function by both types, so that the walk over rows is compiled once.
  using Row = void (*)(void*, const void*, std::int64_t, std::int64_t, std::int64_t, bool);
  const Row row = core::dispatch_any(kernel.out_dtype, [&]<class Out>() {
    return core::dispatch_any(kernel.in_dtype, [&]<class In>() -> Row { return &copy_row<Out, In>; });
  });
  const int last = kernel.loop.ndim - 1;
  const Operand out = cpu::in_bytes(kernel.out, item_size(kernel.out_dtype));
  const Operand in = cpu::in_bytes(kernel.in, item_size(kernel.in_dtype));
  cpu::for_each_row<std::byte>(kernel.loop, {&out, &in}, [&](std::byte* const(&p)[2], std::int64_t count) {
    row(p[0], p[1], kernel.out.strides[last], kernel.in.strides[last], count, kernel.accumulate == Accumulate::yes);
  });
}

void run(OnCpu, Context&, const Transfer& kernel) {
  std::memcpy(kernel.out, kernel.in, static_cast<std::size_t>(kernel.bytes));
}

}  // namespace tandem::inline v0::kernels
