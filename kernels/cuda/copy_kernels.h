#pragma once

#include <type_traits>

#include <tandem/kernels/copy.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/math.h>

// Copies to one type from every type, compiled once per written type in sources that CMake generates (sources.cmake).
// Floor: one element is read and one written.

namespace tandem::inline v0::kernels::gpu {

template <class Out, class In>
struct CopyFunctor {
  static constexpr int kOperands = 2;
  static constexpr int kBytes = sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In);

  Out* out;
  const In* in;
  bool accumulate;

  const void* data(int i) const { return i == 0 ? static_cast<const void*>(out) : in; }
  int size(int i) const { return i == 0 ? sizeof(Out) : sizeof(In); }
  CopyFunctor advanced(const std::int64_t* offsets) const { return {out + offsets[0], in + offsets[1], accumulate}; }

  template <int V>
  struct Values {
    Pack<In, V> in;
    Pack<Out, V> before;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    values.in = load_pack<V>(in + offsets[1], dense[1]);
    if (accumulate) {
      values.before = load_pack<V>(out + offsets[0], true);
    }
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      result.values[i] = convert<Out>(values.in.values[i]);
      if constexpr (!std::is_same_v<Out, bool>) {
        if (accumulate) {
          result.values[i] = Out(wrapping_add(values.before.values[i], result.values[i]));
        }
      }
    }
    *reinterpret_cast<Pack<Out, V>*>(out + offsets[0]) = result;
  }
};

template <class Out>
void copy_to(const Queue& queue, const Copy& kernel) {
  for_any(kernel.in_dtype, [&]<class In>() {
    for_each(queue, Copy::kName,
             CopyFunctor<Out, In>{kernel.out.as<Out>(), kernel.in.as<const In>(), kernel.accumulate == Accumulate::yes},
             kernel.loop, {kernel.out.strides, kernel.in.strides});
  });
}

}  // namespace tandem::inline v0::kernels::gpu
