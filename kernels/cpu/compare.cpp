#include <cstddef>
#include <cstdint>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/compare.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>

namespace tandem::inline v0::kernels {

namespace {

// Strides and length of one row; strides are in elements.
struct Row {
  std::int64_t out_stride, a_stride, b_stride, count;
};

template <CompareOp op, class T>
bool holds(T a, T b) {
  using enum CompareOp;
  if constexpr (op == eq) return a == b;
  if constexpr (op == ne) return a != b;
  if constexpr (op == lt) return a < b;
  if constexpr (op == le) return a <= b;
  if constexpr (op == gt) return a > b;
  if constexpr (op == ge) return a >= b;
  if constexpr (op == logical_and) return a != T(0) && b != T(0);
  if constexpr (op == logical_or) return a != T(0) || b != T(0);
  if constexpr (op == logical_xor) return (a != T(0)) != (b != T(0));
}

template <CompareOp op, class T>
void compare_row(bool* out, const void* a_data, const void* b_data, const Row& row) {
  const T* a = static_cast<const T*>(a_data);
  const T* b = static_cast<const T*>(b_data);
  if constexpr (cpu::kPiecesPay<T>) {
    if (row.a_stride == 1 && row.b_stride == 1 && row.count >= cpu::kHalfLeast) {
      float wide[cpu::kHalfPiece];
      return cpu::for_each_piece(a, row.count, [&](const float* floats, std::int64_t first, std::int64_t count) {
        cpu::widen(wide, b + first, count);
        compare_row<op, float>(out + first * row.out_stride, floats, wide,
                               {.out_stride = row.out_stride, .a_stride = 1, .b_stride = 1, .count = count});
      });
    }
  }
  for (std::int64_t i = 0; i < row.count; ++i) {
    out[i * row.out_stride] = holds<op, ComputeType<T>>(a[i * row.a_stride], b[i * row.b_stride]);
  }
}

using CompareRow = void (*)(bool*, const void*, const void*, const Row&);

template <class T>
CompareRow compare_row_of(CompareOp op) {
  using enum CompareOp;
  switch (op) {
    case eq: return &compare_row<eq, T>;
    case ne: return &compare_row<ne, T>;
    case lt: return &compare_row<lt, T>;
    case le: return &compare_row<le, T>;
    case gt: return &compare_row<gt, T>;
    case ge: return &compare_row<ge, T>;
    case logical_and: return &compare_row<logical_and, T>;
    case logical_or: return &compare_row<logical_or, T>;
    case logical_xor: return &compare_row<logical_xor, T>;
  }
  __builtin_unreachable();
}

// Selects with a mask, so that the loop vectorises: a branch on the condition would often be mispredicted.
template <class Item>
void select_dense(Item* out, const bool* condition, const Item* a, const Item* b, std::int64_t count) {
  if constexpr (sizeof(Item) == 4) {
    return TANDEM_BY_ISA(select_32)(out, condition, a, b, count);
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const auto mask = static_cast<Item>(Item(0) - static_cast<Item>(condition[i]));
    out[i] = static_cast<Item>((a[i] & mask) | (b[i] & static_cast<Item>(~mask)));
  }
}

template <class Item>
void select(const Where& kernel) {
  const int last = kernel.loop.ndim - 1;
  const std::int64_t so = kernel.out.strides[last];
  const std::int64_t sc = kernel.condition.strides[last];
  const std::int64_t sa = kernel.a.strides[last];
  const std::int64_t sb = kernel.b.strides[last];
  const Operand out_bytes = cpu::in_bytes(kernel.out, sizeof(Item));
  const Operand a_bytes = cpu::in_bytes(kernel.a, sizeof(Item));
  const Operand b_bytes = cpu::in_bytes(kernel.b, sizeof(Item));
  cpu::for_each_row<std::byte>(kernel.loop, {&out_bytes, &kernel.condition, &a_bytes, &b_bytes},
                               [&](std::byte* const(&p)[4], std::int64_t count) {
                                 Item* out = reinterpret_cast<Item*>(p[0]);
                                 const bool* condition = reinterpret_cast<const bool*>(p[1]);
                                 const Item* a = reinterpret_cast<const Item*>(p[2]);
                                 const Item* b = reinterpret_cast<const Item*>(p[3]);
                                 if (so == 1 && sc == 1 && sa == 1 && sb == 1) {
                                   return select_dense(out, condition, a, b, count);
                                 }
                                 for (std::int64_t i = 0; i < count; ++i) {
                                   out[i * so] = condition[i * sc] ? a[i * sa] : b[i * sb];
                                 }
                               });
}

}  // namespace

void run(OnCpu, Context&, const Compare& kernel) {
  // Looks up the row function by type and op, so that the walk over rows is compiled once.
  const CompareRow row = core::dispatch_any(kernel.dtype, [&]<class T>() { return compare_row_of<T>(kernel.op); });
  const int last = kernel.loop.ndim - 1;
  const Operand a_bytes = cpu::in_bytes(kernel.a, item_size(kernel.dtype));
  const Operand b_bytes = cpu::in_bytes(kernel.b, item_size(kernel.dtype));
  cpu::for_each_row<std::byte>(kernel.loop, {&kernel.out, &a_bytes, &b_bytes},
                               [&](std::byte* const(&p)[3], std::int64_t count) {
                                 row(reinterpret_cast<bool*>(p[0]), p[1], p[2],
                                     {.out_stride = kernel.out.strides[last],
                                      .a_stride = kernel.a.strides[last],
                                      .b_stride = kernel.b.strides[last],
                                      .count = count});
                               });
}

void run(OnCpu, Context&, const Where& kernel) {
  for_item(kernel.item_size, [&]<class Item>() { select<Item>(kernel); });
}

}  // namespace tandem::inline v0::kernels
