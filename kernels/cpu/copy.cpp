#include <tandem/kernels/copy.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/half_rows.h>
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
    if constexpr (std::is_same_v<Out, float> && std::is_same_v<In, float>) {
      if (in_stride == 1 && out_stride == 1) {
        return TANDEM_BY_ISA(add_f32)(to, from, count);
      }
    }
    if constexpr (is_16_bit<Out> && std::is_same_v<In, Out>) {
      if (in_stride == 1 && out_stride == 1) {
        return cpu::add_rounded(to, from, count);
      }
    }
    if constexpr (!std::is_same_v<Out, bool>) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i * out_stride] = wrapping_add(to[i * out_stride], convert<Out>(from[i * in_stride]));
      }
    }
  } else if (in_stride == 1 && out_stride == 1) {
    if constexpr (std::is_same_v<In, Out>) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(Out));
    } else if constexpr (std::is_same_v<In, float> && is_16_bit<Out>) {
      cpu::narrow(to, from, count);
    } else if constexpr (is_16_bit<In> && std::is_same_v<Out, float>) {
      cpu::widen(to, from, count);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = convert<Out>(from[i]);
      }
    }
  } else if (in_stride == 0 && out_stride == 1) {
    std::fill_n(to, count, convert<Out>(*from));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i * out_stride] = convert<Out>(from[i * in_stride]);
    }
  }
}

// Whether the kernel writes rows and reads columns whose elements are neighbours.
bool transposes(const Copy& kernel) {
  const int last = kernel.loop.ndim - 1;
  return kernel.in_dtype == kernel.out_dtype && kernel.accumulate == Accumulate::no && last >= 1 && last <= 2 &&
         kernel.out.strides[last] == 1 && kernel.in.strides[last - 1] == 1 && kernel.in.strides[last] > 1;
}

// Copies one matrix in tiles. A tile goes through a buffer, so that each cache line is read and written once: rows a
// power of two apart would push each other out of the cache. The lines of the next tile are fetched meanwhile, because
// far lines lie in pages of their own, where the processor does not fetch ahead.
template <class Item>
void transpose(const Copy& kernel, const Item* in, Item* out) {
  constexpr std::int64_t kTile = 32;
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(Item));  // elements
  const int last = kernel.loop.ndim - 1;
  const std::int64_t rows = kernel.loop.sizes[last - 1];
  const std::int64_t columns = kernel.loop.sizes[last];
  const std::int64_t in_stride = kernel.in.strides[last];
  const std::int64_t out_stride = kernel.out.strides[last - 1];
  const std::int64_t grain = 1 + cpu::kElementChunk / (kTile * columns + 1);
  core::parallel_for((rows + kTile - 1) / kTile, grain, [&](std::int64_t begin, std::int64_t end) {
    Item tile[kTile][kTile];
    for (std::int64_t row = begin * kTile; row < std::min(end * kTile, rows); row += kTile) {
      const std::int64_t height = std::min(kTile, rows - row);
      for (std::int64_t column = 0; column < columns; column += kTile) {
        const std::int64_t width = std::min(kTile, columns - column);
        for (std::int64_t c = 0; c < width; ++c) {
          const Item* from = in + (column + c) * in_stride + row;
          const std::int64_t next = column + kTile;
          for (std::int64_t i = 0; next + c < columns && i < height; i += kLine) {
            __builtin_prefetch(from + kTile * in_stride + i);
          }
          for (std::int64_t i = 0; c < height && next + i < columns && i < kTile; i += kLine) {
            __builtin_prefetch(out + (row + c) * out_stride + next + i, 1);
          }
          for (std::int64_t r = 0; r < height; ++r) {
            tile[r][c] = from[r];
          }
        }
        for (std::int64_t r = 0; r < height; ++r) {
          std::memcpy(out + (row + r) * out_stride + column, tile[r], static_cast<std::size_t>(width) * sizeof(Item));
        }
      }
    }
  });
}

}  // namespace

void run(OnCpu, Context&, const Copy& kernel) {
  if (transposes(kernel)) {
    return for_item(static_cast<std::int64_t>(item_size(kernel.in_dtype)), [&]<class Item>() {
      for (std::int64_t i = 0; i < (kernel.loop.ndim == 3 ? kernel.loop.sizes[0] : 1); ++i) {
        transpose(kernel, kernel.in.as<const Item>() + i * kernel.in.strides[0],
                  kernel.out.as<Item>() + i * kernel.out.strides[0]);
      }
    });
  }
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
