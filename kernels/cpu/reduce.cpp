#include <tandem/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/column_sums.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/reduce_rows.h>
#include <tandem/kernels/math.h>

namespace tandem::inline v0::kernels {

namespace {

constexpr std::int64_t kSumBlock = 512;          // elements summed before their sum joins the others
constexpr int kLanes = 8;                        // independent sums inside a block, one for each lane of a vector
using cpu::kRowBlock;                            // rows summed before their sum joins the others
static_assert(kRowBlock == kSumBlock / kLanes);  // each lane does as many additions as a row block
constexpr std::int64_t kSumChunk = 65536;        // elements of one long sum per chunk

// Adds up elements of type T, or counts those that are not 0. Blocks are summed in lanes, where narrow integers don't
// overflow; the blocks are summed in a total, which becomes the result.
template <class T, bool kCount>
struct Sum {
  static constexpr bool kWhole = kCount || std::is_integral_v<T>;
  using Lane = std::conditional_t<!kWhole, ComputeType<T>,
                                  std::conditional_t<kCount || sizeof(T) == 1, std::uint32_t, std::int64_t>>;
  using Total = std::conditional_t<kWhole, std::int64_t, double>;
  using Out = std::conditional_t<kWhole, std::int64_t, T>;

  static Lane add(Lane sum, T value) {
    if constexpr (kCount) {
      return sum + (static_cast<ComputeType<T>>(value) != 0 ? 1 : 0);
    } else {
      return wrapping_add<Lane>(sum, value);
    }
  }
};

template <class S, class T>
typename S::Total sum_strided(const T* in, std::int64_t stride, std::int64_t count) {
  if constexpr (std::is_same_v<S, Sum<float, false>>) {
    if (stride == 1) {
      return TANDEM_BY_ISA(sum_row)(in, count);
    }
  }
  if constexpr (cpu::kPiecesPay<T> && std::is_same_v<S, Sum<T, false>>) {
    if (stride == 1 && count >= cpu::kHalfLeast) {
      double total = 0;
      cpu::for_each_piece(in, count, [&](const float* floats, std::int64_t, std::int64_t here) {
        total += TANDEM_BY_ISA(sum_row)(floats, here);
      });
      return total;
    }
  }
  typename S::Total total = 0;
  for (std::int64_t begin = 0; begin < count; begin += kSumBlock) {
    const std::int64_t end = std::min(begin + kSumBlock, count);
    typename S::Lane lanes[kLanes] = {};
    std::int64_t i = begin;
    if (stride == 1) {
      for (; i + kLanes <= end; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
          lanes[lane] = S::add(lanes[lane], in[i + lane]);
        }
      }
    }
    for (int lane = 0; i < end; ++i, lane = (lane + 1) % kLanes) {
      lanes[lane] = S::add(lanes[lane], in[i * stride]);
    }
    for (const auto lane : lanes) {
      total = wrapping_add(total, static_cast<typename S::Total>(lane));
    }
  }
  return total;
}

// Sums positions [begin, end) of the reduced loop.
template <class S, class T>
typename S::Total sum_range(const Reduce& kernel, const T* base, std::int64_t begin, std::int64_t end) {
  const int last = kernel.reduced.ndim - 1;
  const std::int64_t row = kernel.reduced.sizes[last];
  const std::int64_t stride = kernel.in_reduced.strides[last];
  typename S::Total total = 0;
  for (std::int64_t position = begin; position < end;) {
    const std::int64_t count = std::min(end - position, row - position % row);
    total = wrapping_add(
        total, sum_strided<S>(base + offset_at(kernel.reduced, kernel.in_reduced.strides, position), stride, count));
    position += count;
  }
  return total;
}

template <class S>
void store(const Reduce& kernel, typename S::Out* out, typename S::Total total) {
  using C = ComputeType<typename S::Out>;
  C value;
  if constexpr (S::kWhole) {
    value = total;
  } else {
    value = static_cast<C>(total * kernel.scale);
  }
  *out = typename S::Out(kernel.accumulate == Accumulate::yes ? wrapping_add<C>(*out, value) : value);
}

// Columns per chunk: few wide chunks, so that rows are read in long stretches. How the columns are cut changes no bit.
std::int64_t column_grain(std::int64_t columns, std::int64_t rows) {
  constexpr std::int64_t kLeast = 256;
  const std::int64_t parts = rows * kLeast < kSumChunk ? 1 : core::ThreadPool::instance().share();
  return std::max(((columns + parts - 1) / parts + 63) / 64 * 64, kLeast);
}

// Sums over the outer dimension of a matrix whose rows are dense (a bias gradient). Rows are added to a row of sums, in
// blocks, so that memory is read in order.
template <class S, class T>
void sum_columns(const Reduce& kernel) {
  // Columns at a time: few enough for the sums to stay in L1, and enough for memory to be read in long stretches.
  constexpr std::int64_t kColumns = is_16_bit<T> ? 2048 : 1024;
  const std::int64_t columns = kernel.kept.sizes[0];
  const std::int64_t rows = kernel.reduced.sizes[0];
  const std::int64_t row_stride = kernel.in_reduced.strides[0];
  core::parallel_for(columns, column_grain(columns, rows), [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<S, Sum<float, false>>) {
      const std::int64_t out_stride = kernel.out.strides[0];
      return TANDEM_BY_ISA(sum_columns_f32)({.in = kernel.in.as<float>() + begin,
                                             .rows = rows,
                                             .columns = end - begin,
                                             .row_stride = row_stride,
                                             .out = kernel.out.as<float>() + begin * out_stride,
                                             .out_stride = out_stride,
                                             .scale = kernel.scale,
                                             .accumulate = kernel.accumulate});
    }
    for (std::int64_t first = begin; first < end; first += kColumns) {
      const std::int64_t width = std::min(kColumns, end - first);
      typename S::Total totals[kColumns];
      std::fill_n(totals, width, 0);
      for (std::int64_t block = 0; block < rows; block += kRowBlock) {
        typename S::Lane sums[kColumns];
        std::fill_n(sums, width, 0);
        for (std::int64_t r = block; r < std::min(block + kRowBlock, rows); ++r) {
          const T* in = kernel.in.as<const T>() + r * row_stride + first;
          if constexpr (is_16_bit<T> && !S::kWhole) {
            if (width >= cpu::kHalfLeast) {
              float line[kColumns];
              cpu::widen(line, in, width);
              TANDEM_BY_ISA(add_f32)(sums, line, width);
              continue;
            }
          }
          for (std::int64_t c = 0; c < width; ++c) {
            sums[c] = S::add(sums[c], in[c]);
          }
        }
        for (std::int64_t c = 0; c < width; ++c) {
          totals[c] = wrapping_add(totals[c], static_cast<typename S::Total>(sums[c]));
        }
      }
      for (std::int64_t c = 0; c < width; ++c) {
        store<S>(kernel, kernel.out.as<typename S::Out>() + (first + c) * kernel.out.strides[0], totals[c]);
      }
    }
  });
}

template <class T, bool kCount>
void sum(Context& context, const Reduce& kernel) {
  using S = Sum<T, kCount>;
  const std::int64_t outputs = kernel.kept.numel();
  const std::int64_t length = kernel.reduced.numel();
  if (kernel.kept.ndim == 1 && kernel.reduced.ndim == 1 && kernel.in.strides[0] == 1 && outputs > 1 && length > 0) {
    return sum_columns<S, T>(kernel);
  }
  if (outputs == 1 && length > kSumChunk) {
    const auto total = cpu::join_chunks(
        context.scratch, length, kSumChunk, typename S::Total(0),
        [&](std::int64_t begin, std::int64_t end) { return sum_range<S>(kernel, kernel.in.as<const T>(), begin, end); },
        [](typename S::Total a, typename S::Total b) { return wrapping_add(a, b); });
    return store<S>(kernel, kernel.out.as<typename S::Out>(), total);
  }
  const std::int64_t grain = 1 + kSumChunk / (length + 16);
  core::parallel_for(outputs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      const T* base = kernel.in.as<const T>() + offset_at(kernel.kept, kernel.in.strides, position);
      store<S>(kernel, kernel.out.as<typename S::Out>() + offset_at(kernel.kept, kernel.out.strides, position),
               sum_range<S>(kernel, base, 0, length));
    }
  });
}

// Whether the reduced dimension is walked in rows whose elements are neighbours, and so are the results.
bool has_neighbouring_columns(const Reduce& kernel) {
  return kernel.kept.ndim == 1 && kernel.reduced.ndim == 1 && kernel.in.strides[0] == 1 && kernel.out.strides[0] == 1 &&
         kernel.kept.sizes[0] > 1 && kernel.reduced.sizes[0] > 0;
}

void extremes_of_columns(const Reduce& kernel, bool largest) {
  core::parallel_for(kernel.kept.sizes[0], column_grain(kernel.kept.sizes[0], kernel.reduced.sizes[0]),
                     [&](std::int64_t begin, std::int64_t end) {
                       TANDEM_BY_ISA(extremes_of_columns)
                       ({.in = kernel.in.as<const float>() + begin,
                         .rows = kernel.reduced.sizes[0],
                         .columns = end - begin,
                         .row_stride = kernel.in_reduced.strides[0],
                         .out = kernel.out.as<float>() + begin,
                         .indices = kernel.indices != nullptr ? kernel.indices + begin : nullptr},
                        largest);
                     });
}

template <class T, bool kMax>
void extreme(const Reduce& kernel) {
  using C = ComputeType<T>;
  const std::int64_t length = kernel.reduced.numel();
  if constexpr (std::is_same_v<T, float>) {
    if (has_neighbouring_columns(kernel) && length < (std::int64_t{1} << 31)) {
      return extremes_of_columns(kernel, kMax);
    }
  }
  const bool dense = kernel.reduced.ndim == 1 && kernel.in_reduced.strides[0] == 1;
  const std::int64_t grain = 1 + kSumChunk / (length + 16);
  core::parallel_for(kernel.kept.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      const T* base = kernel.in.as<const T>() + offset_at(kernel.kept, kernel.in.strides, position);
      if constexpr (std::is_same_v<T, float>) {
        if (dense) {
          const cpu::Extreme found = TANDEM_BY_ISA(extreme_of_row)(base, length, kMax, kernel.indices != nullptr);
          kernel.out.as<T>()[offset_at(kernel.kept, kernel.out.strides, position)] = found.value;
          if (kernel.indices != nullptr) {
            kernel.indices[position] = found.at;
          }
          continue;
        }
      }
      T best = base[0];
      std::int64_t best_at = 0;
      for (std::int64_t i = 1; i < length; ++i) {
        const T value = base[kernel.reduced.ndim == 1 ? i * kernel.in_reduced.strides[0]
                                                      : offset_at(kernel.reduced, kernel.in_reduced.strides, i)];
        // The negated comparison lets a NaN win. Once it has won, nothing beats it.
        const bool wins = kMax ? !(C(value) <= C(best)) : !(C(value) >= C(best));
        if (wins && !(C(best) != C(best))) {
          best = value;
          best_at = i;
        }
      }
      kernel.out.as<T>()[offset_at(kernel.kept, kernel.out.strides, position)] = best;
      if (kernel.indices != nullptr) {
        kernel.indices[position] = best_at;
      }
    }
  });
}

}  // namespace

void run(OnCpu, Context& context, const Reduce& kernel) {
  core::dispatch_any(kernel.dtype, [&]<class T>() {
    switch (kernel.op) {
      case ReduceOp::sum: return sum<T, false>(context, kernel);
      case ReduceOp::nonzero: return sum<T, true>(context, kernel);
      case ReduceOp::max: return extreme<T, true>(kernel);
      case ReduceOp::min: return extreme<T, false>(kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
