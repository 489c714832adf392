#include <tandem/kernels/gather.h>

#include <cstddef>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

template <class Item>
void gather(const Gather& kernel) {
  const int last = kernel.loop.ndim - 1;
  const Operand out = cpu::in_bytes(kernel.out, sizeof(Item));
  const Operand index = cpu::in_bytes(kernel.index, sizeof(std::int64_t));
  const Operand in = cpu::in_bytes(kernel.in, sizeof(Item));
  cpu::for_each_row<std::byte>(kernel.loop, {&out, &index, &in}, [&](std::byte* const(&p)[3], std::int64_t count) {
    Item* to = reinterpret_cast<Item*>(p[0]);
    const auto* at = reinterpret_cast<const std::int64_t*>(p[1]);
    const Item* from = reinterpret_cast<const Item*>(p[2]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = at[i * kernel.index.strides[last]] * kernel.dim_stride;
      to[i * kernel.out.strides[last]] = from[i * kernel.in.strides[last] + position];
    }
  });
}

template <class T>
void scatter_add(const ScatterAdd& kernel) {
  const int last = kernel.loop.ndim - 1;
  const Operand out = cpu::in_bytes(kernel.out, sizeof(T));
  const Operand index = cpu::in_bytes(kernel.index, sizeof(std::int64_t));
  const Operand in = cpu::in_bytes(kernel.in, sizeof(T));
  const auto row = [&](std::byte* const(&p)[3], std::int64_t count) {
    T* to = reinterpret_cast<T*>(p[0]);
    const auto* at = reinterpret_cast<const std::int64_t*>(p[1]);
    const T* from = reinterpret_cast<const T*>(p[2]);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = at[i * kernel.index.strides[last]] * kernel.dim_stride;
      T& target = to[i * kernel.out.strides[last] + position];
      target = wrapping_add(target, from[i * kernel.in.strides[last]]);
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
