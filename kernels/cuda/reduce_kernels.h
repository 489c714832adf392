#pragma once

#include <algorithm>
#include <type_traits>

#include <tandem/kernels/cuda/patterns/reduction.h>
#include <tandem/kernels/math.h>
#include <tandem/kernels/reduce.h>

// Sums, counts, maxima and minima of one type, compiled once per type in sources that CMake generates (sources.cmake).
// Floor: each element of `in` is read once, sizeof(T) bytes. reduction.h lays out the threads. Packs have 16 bytes;
// those of u8 and bool have 8.

namespace tandem::inline v0::kernels::gpu {

// Adds elements up, or counts those that are not 0. The types are those of the CPU's sums.
template <class T, bool kCount>
struct SumSource {
  static constexpr bool kWhole = kCount || std::is_integral_v<T>;
  using Lane = std::conditional_t<!kWhole, ComputeType<T>,
                                  std::conditional_t<kCount || sizeof(T) == 1, std::uint32_t, std::int64_t>>;
  using Total = std::conditional_t<kWhole, std::int64_t, double>;
  using Out = std::conditional_t<kWhole, std::int64_t, T>;
  struct Column {};
  template <int V>
  using Values = Pack<T, V>;

  const T* in;
  Out* out;
  Walk out_walk;
  double scale;
  bool accumulate;

  __device__ Column column(std::int64_t) const { return {}; }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t) const {
    return load_pack<V>(in + offset, true);
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& sum, const Pack<T, V>& values, int i, std::int64_t, Column) const {
    if constexpr (kCount) {
      sum += static_cast<ComputeType<T>>(values.values[i]) != 0 ? 1 : 0;
    } else {
      sum = wrapping_add<Lane>(sum, values.values[i]);
    }
  }
  static __device__ Total join(Total total, Lane lane) { return wrapping_add(total, static_cast<Total>(lane)); }
  static __device__ Total combine(Total a, Total b) { return wrapping_add(a, b); }
  __device__ void store(std::int64_t output, Total total) const {
    using C = ComputeType<Out>;
    C value;
    if constexpr (kWhole) {
      value = total;
    } else {
      value = static_cast<C>(total * scale);
    }
    Out& target = out[out_walk.offset(output)];
    target = Out(accumulate ? wrapping_add<C>(target, value) : value);
  }
};

// Finds the first of the largest (or smallest) elements, or the first NaN if there is one.
template <class T, bool kMax>
struct ExtremeSource {
  using C = ComputeType<T>;
  struct alignas(8) Total {
    std::int64_t end = 0;  // position + 1; 0 for no element
    C value{};
  };
  using Lane = Total;
  struct Column {};
  template <int V>
  using Values = Pack<T, V>;

  const T* in;
  T* out;
  Walk out_walk;
  std::int64_t* indices;

  // The negated comparison lets a NaN win. Once it has won, nothing beats it.
  static __device__ __forceinline__ bool beats(C value, C best) {
    return (kMax ? !(value <= best) : !(value >= best)) && !(best != best);
  }
  __device__ Column column(std::int64_t) const { return {}; }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t) const {
    return load_pack<V>(in + offset, true);
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& best, const Pack<T, V>& values, int i, std::int64_t position,
                                      Column) const {
    const C value = values.values[i];
    if (best.end == 0 || beats(value, best.value)) {
      best.value = value;
      best.end = position + 1;
    }
  }
  static __device__ Total join(const Total& total, const Lane& lane) { return combine(total, lane); }
  static __device__ Total combine(const Total& a, const Total& b) {
    // end - 1 of no element is, as an unsigned number, larger than all others. Fields are selected one by one, so that
    // they stay in registers.
    const bool in_order = static_cast<std::uint64_t>(a.end) - 1 < static_cast<std::uint64_t>(b.end) - 1;
    const std::int64_t early = in_order ? a.end : b.end;
    const std::int64_t late = in_order ? b.end : a.end;
    const C first = in_order ? a.value : b.value;
    const C second = in_order ? b.value : a.value;
    const bool takes = late != 0 && beats(second, first);
    return {takes ? late : early, takes ? second : first};
  }
  __device__ void store(std::int64_t output, const Total& total) const {
    out[out_walk.offset(output)] = T(total.value);
    if (indices != nullptr) {
      indices[output] = total.end - 1;
    }
  }
};

template <class T>
void reduce_on_gpu(const Queue& queue, const Reduce& kernel) {
  constexpr int kWide = std::min(16 / static_cast<int>(sizeof(T)), 8);
  const T* in = kernel.in.as<const T>();
  const ReductionProblem problem{.kept = kernel.kept,
                                 .reduced = kernel.reduced,
                                 .kept_strides = kernel.in.strides,
                                 .reduced_strides = kernel.in_reduced.strides,
                                 .alignment = alignment_of(in),
                                 .item = sizeof(T)};
  const Walk out(kernel.kept, kernel.out.strides);
  const bool accumulate = kernel.accumulate == Accumulate::yes;
  const auto sum = [&]<bool kCount>() {
    using Source = SumSource<T, kCount>;
    reduce<kWide>(queue, Reduce::kName,
                  Source{in, kernel.out.as<typename Source::Out>(), out, kernel.scale, accumulate}, problem);
  };
  const auto extreme = [&]<bool kMax>() {
    reduce<kWide>(queue, Reduce::kName, ExtremeSource<T, kMax>{in, kernel.out.as<T>(), out, kernel.indices}, problem);
  };
  switch (kernel.op) {
    case ReduceOp::sum: return sum.template operator()<false>();
    case ReduceOp::nonzero: return sum.template operator()<true>();
    case ReduceOp::max: return extreme.template operator()<true>();
    case ReduceOp::min: return extreme.template operator()<false>();
  }
}

}  // namespace tandem::inline v0::kernels::gpu
