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
struct PointwiseValue {
  using C = ComputeType<T>;
  C s, t;
  bool accumulate;

  __device__ T operator()(const T& before, const T& a, const T& b = {}, const T& c = {}) const {
    const C y = pointwise<op>(C(a), C(b), C(c), s, t);
    return T(accumulate ? wrapping_add(C(before), y) : y);
  }
};

template <PointwiseOp op, class T>
void launch_pointwise(const Queue& queue, const Pointwise& kernel) {
  using C = ComputeType<T>;
  const bool limits = op == PointwiseOp::clamp;  // a limit beyond an integer type does not limit
  const PointwiseValue<op, T> value{.s = limits ? saturated<C>(kernel.s) : convert<C>(kernel.s),
                                    .t = limits ? saturated<C>(kernel.t) : convert<C>(kernel.t),
                                    .accumulate = kernel.accumulate == Accumulate::yes};
  const auto launch = [&]<class... In>(const auto&... inputs) {
    compute_each<T, In...>(queue, Pointwise::kName, value, kernel.loop, kernel.out, inputs...);
  };
  if constexpr (arity(op) == 1) {
    launch.template operator()<T>(kernel.in[0]);
  } else if constexpr (arity(op) == 2) {
    launch.template operator()<T, T>(kernel.in[0], kernel.in[1]);
  } else {
    launch.template operator()<T, T, T>(kernel.in[0], kernel.in[1], kernel.in[2]);
  }
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
