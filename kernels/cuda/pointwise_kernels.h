#pragma once

#include <type_traits>
#include <utility>

#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/cuda/pointwise_table.h>
#include <tandem/kernels/pointwise_formulas.h>

// One launcher per PointwiseOp for a type, and the tables of pointwise_table.h. Compiled once per type, in sources that
// CMake generates (sources.cmake).

namespace tandem::inline v0::kernels::gpu {

template <PointwiseOp op, class T>
struct PointwiseFunctor {
  using C = ComputeType<T>;
  static constexpr int kIn = arity(op);
  static constexpr int kOperands = kIn + 1;
  static constexpr int kBytes = sizeof(T);

  T* out;
  const T* in[kIn];
  C s, t;
  bool accumulate;

  const void* data(int i) const { return i == 0 ? out : in[i - 1]; }
  int size(int) const { return sizeof(T); }
  PointwiseFunctor advanced(const std::int64_t* offsets) const {
    PointwiseFunctor moved = *this;
    moved.out += offsets[0];
    for (int i = 0; i < kIn; ++i) {
      moved.in[i] += offsets[i + 1];
    }
    return moved;
  }

  template <int V>
  struct Values {
    Pack<T, V> in[kIn];
    Pack<T, V> before;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
#pragma unroll
    for (int i = 0; i < kIn; ++i) {
      values.in[i] = load_pack<V>(in[i] + offsets[i + 1], dense[i + 1]);
    }
    if (accumulate) {
      values.before = load_pack<V>(out + offsets[0], true);
    }
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C a = values.in[0].values[i];
      const C b = kIn > 1 ? C(values.in[kIn > 1 ? 1 : 0].values[i]) : C(0);
      const C c = kIn > 2 ? C(values.in[kIn > 2 ? 2 : 0].values[i]) : C(0);
      const C y = pointwise<op>(a, b, c, s, t);
      result.values[i] = T(accumulate ? wrapping_add(C(values.before.values[i]), y) : y);
    }
    *reinterpret_cast<Pack<T, V>*>(out + offsets[0]) = result;
  }
};

template <PointwiseOp op, class T>
void launch_pointwise(const Queue& queue, const Pointwise& kernel) {
  using C = ComputeType<T>;
  using F = PointwiseFunctor<op, T>;
  const bool limits = op == PointwiseOp::clamp;  // a limit beyond an integer type does not limit
  F f{.out = kernel.out.as<T>(),
      .in = {},
      .s = limits ? saturated<C>(kernel.s) : convert<C>(kernel.s),
      .t = limits ? saturated<C>(kernel.t) : convert<C>(kernel.t),
      .accumulate = kernel.accumulate == Accumulate::yes};
  const std::int64_t* strides[F::kOperands] = {kernel.out.strides};
  for (int i = 0; i < F::kIn; ++i) {
    f.in[i] = kernel.in[i].as<const T>();
    strides[i + 1] = kernel.in[i].strides;
  }
  for_each(queue, Pointwise::kName, f, kernel.loop, strides);
}

/// The launcher of `op`, from a table of the ops from kFirst on, one for each index of the sequence.
template <class T, PointwiseOp kFirst, std::size_t... i>
PointwiseLauncher find_launcher(PointwiseOp op, std::index_sequence<i...>) {
  static constexpr PointwiseLauncher kAll[] = {
      launch_pointwise<static_cast<PointwiseOp>(static_cast<std::size_t>(kFirst) + i), T>...};
  return kAll[static_cast<std::size_t>(op) - static_cast<std::size_t>(kFirst)];
}
template <class T, PointwiseOp kFirst, PointwiseOp kEnd>
PointwiseLauncher find_launcher(PointwiseOp op) {
  return find_launcher<T, kFirst>(
      op, std::make_index_sequence<static_cast<std::size_t>(kEnd) - static_cast<std::size_t>(kFirst)>());
}

template <class T>
PointwiseLauncher arithmetic_launcher(PointwiseOp op) {
  return find_launcher<T, PointwiseOp::copy, kFirstFunction>(op);
}
template <class T>
PointwiseLauncher function_launcher(PointwiseOp op) {
  return find_launcher<T, kFirstFunction, kSecondHalf>(op);
}
template <class T>
PointwiseLauncher gradient_launcher(PointwiseOp op) {
  return find_launcher<T, kSecondHalf, PointwiseOp::count_>(op);
}
template <class T>
PointwiseLauncher integer_launcher(PointwiseOp op) {
  return find_launcher<T, PointwiseOp::copy, static_cast<PointwiseOp>(static_cast<int>(kLastIntegerPointwise) + 1)>(op);
}

}  // namespace tandem::inline v0::kernels::gpu
