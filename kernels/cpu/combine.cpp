#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/combine.h>
#include <tandem/kernels/cpu/half_rows.h>

namespace tandem::inline v0::kernels {

namespace {

// Number of elements in a block. A block read from one array stays in L1 until it is combined.
constexpr std::int64_t kCombineBlock = 2048;

template <class T, CombineOp kOp>
void combine_block(const Combine& kernel, std::int64_t first, std::int64_t count) {
  using C = ComputeType<T>;
  T* result = static_cast<T*>(kernel.out[0]) + first;
  const auto copy_to_others = [&] {
    for (int k = 1; k < kernel.outs; ++k) {
      std::memcpy(static_cast<T*>(kernel.out[k]) + first, result, static_cast<std::size_t>(count) * sizeof(T));
    }
  };
  if constexpr (std::is_same_v<T, float> && kOp == CombineOp::sum) {
    if (kernel.ins > 1) {
      // The sums stay in cache between the arrays, also where the result is one of those.
      float sums[kCombineBlock];
      TANDEM_BY_ISA(sum_two)(sums, static_cast<const T*>(kernel.in[0]) + first,
                             static_cast<const T*>(kernel.in[1]) + first, count);
      for (int k = 2; k < kernel.ins; ++k) {
        TANDEM_BY_ISA(add_f32)(sums, static_cast<const T*>(kernel.in[k]) + first, count);
      }
      std::memcpy(result, sums, static_cast<std::size_t>(count) * sizeof(T));
      return copy_to_others();
    }
  }
  using Values = std::conditional_t<cpu::kPiecesPay<T>, C, T>;
  Values wide[2][cpu::kPiecesPay<T> ? kCombineBlock : 1];
  // The block of array k, widened to `to` if that pays.
  const auto values_of = [&](int k, [[maybe_unused]] Values* to) -> const Values* {
    const T* values = static_cast<const T*>(kernel.in[k]) + first;
    if constexpr (cpu::kPiecesPay<T>) {
      cpu::widen(to, values, count);
      return to;
    } else {
      return values;
    }
  };
  C sums[kCombineBlock];
  const Values* lowest = values_of(0, wide[0]);
  if (kernel.ins > 1) {
    const Values* values = values_of(1, wide[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] = formula::combined<kOp>(static_cast<C>(lowest[i]), static_cast<C>(values[i]));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] = static_cast<C>(lowest[i]);
    }
  }
  for (int k = 2; k < kernel.ins; ++k) {
    const Values* values = values_of(k, wide[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] = formula::combined<kOp>(sums[i], static_cast<C>(values[i]));
    }
  }
  if constexpr (kOp == CombineOp::avg && std::is_floating_point_v<C>) {
    const auto divisor = static_cast<C>(kernel.divisor);
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] /= divisor;
    }
  }
  if constexpr (cpu::kPiecesPay<T>) {
    cpu::narrow(result, sums, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = static_cast<T>(sums[i]);
    }
  }
  copy_to_others();
}

template <class T>
auto block_function(CombineOp op) {
  switch (op) {
    case CombineOp::min: return &combine_block<T, CombineOp::min>;
    case CombineOp::max: return &combine_block<T, CombineOp::max>;
    case CombineOp::product: return &combine_block<T, CombineOp::product>;
    case CombineOp::avg: return &combine_block<T, CombineOp::avg>;
    case CombineOp::sum: break;
  }
  return &combine_block<T, CombineOp::sum>;
}

}  // namespace

void run(OnCpu, Context&, const Combine& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    const auto combine = block_function<T>(kernel.op);
    for (std::int64_t done = 0; done < kernel.count; done += kCombineBlock) {
      combine(kernel, done, std::min(kCombineBlock, kernel.count - done));
    }
  });
}

}  // namespace tandem::inline v0::kernels
