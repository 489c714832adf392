#pragma once

#include <type_traits>

#include <tandem/kernels/copy.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/math.h>

// Copies to one type from every type, compiled once per written type in sources that CMake generates (sources.cmake).
// Floor: one element is read and one written.

namespace tandem::inline v0::kernels::gpu {

template <class Out>
struct Converted {
  bool accumulate;

  template <class In>
  __device__ Out operator()(const Out& before, const In& in) const {
    const Out value = convert<Out>(in);
    if constexpr (!std::is_same_v<Out, bool>) {
      return accumulate ? Out(wrapping_add(before, value)) : value;
    }
    return value;
  }
};

template <class Out>
void copy_to(const Queue& queue, const Copy& kernel) {
  for_any(kernel.in_dtype, [&]<class In>() {
    compute_each<Out, In>(queue, Copy::kName, Converted<Out>{kernel.accumulate == Accumulate::yes}, kernel.loop,
                          kernel.out, kernel.in);
  });
}

}  // namespace tandem::inline v0::kernels::gpu
