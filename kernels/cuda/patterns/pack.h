#pragma once

#include <bit>
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

// Where inline assembly computes the elements of a pack, the compiler stores them one by one. These functions store 16
// bytes by one instruction.

/// Stores a pack in the GPU's memory.
template <int V, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, V>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    __stwb(reinterpret_cast<uint4*>(to), std::bit_cast<uint4>(pack));
    return;
  }
#endif
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
}

/// Stores a pack in the block's shared memory.
template <int V, class T>
__device__ __forceinline__ void store_pack_shared(T* to, const Pack<T, V>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    const uint4 words = std::bit_cast<uint4>(pack);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "r"(words.x), "r"(words.y), "r"(words.z),
                   "r"(words.w)
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
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
