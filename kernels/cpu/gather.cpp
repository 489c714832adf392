#include <tandem/kernels/gather.h>

#include <cstddef>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

// Strides along a row and along the indexed dimension. The rows take a copy, which their stores can't alias.
struct Strides {
  std::int64_t out, index, in, dim;

  template <class Kernel>
  explicit Strides(const Kernel& kernel)
      : out(kernel.out.strides[kernel.loop.ndim - 1]),
        index(kernel.index.strides[kernel.loop.ndim - 1]),
        in(kernel.in.strides[kernel.loop.ndim - 1]),
        dim(kernel.dim_stride) {}
};

template <class Item>
void gather(const Gather& kernel) {
  const Operand out = cpu::in_bytes(kernel.out, sizeof(Item));
  const Operand index = cpu::in_bytes(kernel.index, sizeof(std::int64_t));
  const Operand in = cpu::in_bytes(kernel.in, sizeof(Item));
  const Strides by(kernel);
  cpu::for_each_row<std::byte>(kernel.loop, {&out, &index, &in}, [&, by](std::byte* const(&p)[3], std::int64_t count) {
    Item* to = reinterpret_cast<Item*>(p[0]);
    const auto* at = reinterpret_cast<const std::int64_t*>(p[1]);
    const Item* from = reinterpret_cast<const Item*>(p[2]);
    if (by.out == 1 && by.index == 1 && by.in == 0 && by.dim == 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = from[at[i]];
      }
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      to[i * by.out] = from[i * by.in + at[i * by.index] * by.dim];
    }
  });
}

template <class T>
void scatter_add(const ScatterAdd& kernel) {
  const Strides by(kernel);
  const Operand out = cpu::in_bytes(kernel.out, sizeof(T));
  const Operand index = cpu::in_bytes(kernel.index, sizeof(std::int64_t));
  const Operand in = cpu::in_bytes(kernel.in, sizeof(T));
  const auto row = [by](std::byte* const(&p)[3], std::int64_t count) {
    T* to = reinterpret_cast<T*>(p[0]);
    const auto* at = reinterpret_cast<const std::int64_t*>(p[1]);
    const T* from = reinterpret_cast<const T*>(p[2]);
    if (by.out == 0 && by.index == 1 && by.in == 1 && by.dim == 1) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[at[i]] = wrapping_add(to[at[i]], from[i]);
      }
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      T& target = to[i * by.out + at[i * by.index] * by.dim];
      target = wrapping_add(target, from[i * by.in]);
    }
  };
  if (kernel.loop.ndim == 1) {  // a single row is not cut, because its parts could meet at one index
    row({out.as<std::byte>(), index.as<std::byte>(), in.as<std::byte>()}, kernel.loop.sizes[0]);
  } else {
    cpu::for_each_row<std::byte>(kernel.loop, {&out, &index, &in}, row);
  }
}

}  // namespace

void run(OnCpu, Context&, const Gather& kernel) {
  for_item(kernel.item_size, [&]<class Item>() { gather<Item>(kernel); });
}

void run(OnCpu, Context&, const ScatterAdd& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      scatter_add<T>(kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
