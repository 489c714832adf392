#pragma once

#include <cstdint>

#include <cuda_runtime.h>

// Moves elements for all patterns, 16 bytes at once if memory is aligned to that.

namespace tandem::inline v0::kernels {

/// V elements that are moved at once.
template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T values[V];
};

/// The V elements from `from` on, or V times the first one if not dense.
template <int V, class T>
__device__ __forceinline__ Pack<T, V> load_pack(const T* from, bool dense) {
  if (V == 1 || dense) {
    return *reinterpret_cast<const Pack<T, V>*>(from);
  }
  Pack<T, V> pack;
  const T value = *from;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    pack.values[i] = value;
  }
  return pack;
}

/// True if packs of V elements may begin at `memory`.
template <int V, class T>
bool aligned_for(const T* memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory) % sizeof(Pack<T, V>) == 0;
}

/// The lowest bit set in any of these addresses: all of them are aligned to it. Addresses may be null.
template <class... Pointers>
std::uintptr_t alignment_of(const Pointers*... pointers) noexcept {
  const std::uintptr_t bits = (std::uintptr_t{4096} | ... | reinterpret_cast<std::uintptr_t>(pointers));
  return bits & (~bits + 1);
}

}  // namespace tandem::inline v0::kernels
