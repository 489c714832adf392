#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tandem/core/dtype.h>

// Internal: what a matrix product is for those who choose how to compute it. Needs no CUDA header.

namespace tandem::inline v0::kernels::gpu {

/// What follows the sum inside the library's kernel.
enum class Fused : std::int32_t { nothing, bias, relu, relu_bias };

/// All that decides which algorithm can compute a product, and which is fastest. Plain words, compared as such.
struct PlanKey {
  std::int64_t m, n, k;  // ours
  std::int64_t lda, ldb, ldd;
  std::int64_t batch, a_step, b_step, d_step;  // matrices, and elements from one to the next
  std::int32_t type;                           // DType
  std::int32_t a_transposed, b_transposed;     // ours: stored column by column
  std::int32_t fused;
  std::int32_t accumulate;
  std::int32_t tf32;
  std::int32_t a_align, b_align, d_align, bias_align;  // bytes, powers of two up to kMostAlignment
  std::int32_t deterministic;
  std::int32_t zero;  // no padding that could differ

  friend bool operator==(const PlanKey& x, const PlanKey& y) noexcept {
    return std::memcmp(&x, &y, sizeof(PlanKey)) == 0;
  }
};
static_assert(sizeof(PlanKey) == 10 * 8 + 12 * 4);

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const noexcept {
    std::array<std::uint64_t, sizeof(PlanKey) / 8> words;
    std::memcpy(words.data(), &key, sizeof(key));
    std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over words
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x100000001B3u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

inline constexpr std::int32_t kMostAlignment = 256;

/// The largest power of two, as far as it matters, that divides an address and those of the rest of a batch, `step`
/// bytes apart.
inline std::int32_t alignment_of(const void* pointer, std::int64_t step = 0) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | static_cast<std::uintptr_t>(step) | kMostAlignment;
  return static_cast<std::int32_t>(address & (~address + 1));
}

inline Fused fused_of(const PlanKey& key) noexcept { return static_cast<Fused>(key.fused); }
inline bool has_bias(const PlanKey& key) noexcept {
  return fused_of(key) == Fused::bias || fused_of(key) == Fused::relu_bias;
}
inline bool has_relu(const PlanKey& key) noexcept {
  return fused_of(key) == Fused::relu || fused_of(key) == Fused::relu_bias;
}

/// The product without what follows it.
inline PlanKey plain(PlanKey key) noexcept {
  key.fused = static_cast<std::int32_t>(Fused::nothing);
  key.bias_align = kMostAlignment;
  return key;
}

/// Scratch memory that an algorithm may ask for: what NVIDIA recommends for Hopper.
inline constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

}  // namespace tandem::inline v0::kernels::gpu
