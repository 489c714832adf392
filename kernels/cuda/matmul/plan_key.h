#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tandem/core/dtype.h>

// Internal: what a matrix product is for those who choose how to compute it. Needs no CUDA header.

namespace tandem::inline v0::kernels::gpu {

/// The steps after the sum that a product's kernel does itself. The kernel is the library's, except for the last four.
enum class Fused : std::int32_t {
  nothing,
  bias,
  relu,
  relu_bias,
  relu_bits,       // relu, and relu_bits are written
  relu_bits_bias,  // relu_bias, and relu_bits are written
  mask,            // relu_mask_bits are read
  mask_sums,       // and column_sums are written
  a_sums,          // a_sums are written
  // All of them by our own kernel for small products, instead of the library's:
  own,          // there are none
  own_forward,  // bias, relu
  own_mask,     // relu_mask is read; column_sums may be written
  own_a_sums,   // a_sums are written
};

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
  std::int32_t a_align, b_align, d_align;  // bytes, powers of two up to kMostAlignment
  std::int32_t bias_align;                 // of a bias, or of sums
  std::int32_t bits_align;
  std::int32_t deterministic;

  friend bool operator==(const PlanKey& x, const PlanKey& y) noexcept {
    return std::memcmp(&x, &y, sizeof(PlanKey)) == 0;
  }
};
static_assert(sizeof(PlanKey) == 10 * 8 + 12 * 4);  // no padding that could differ

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
  return fused_of(key) == Fused::bias || fused_of(key) == Fused::relu_bias || fused_of(key) == Fused::relu_bits_bias;
}
inline bool has_relu(const PlanKey& key) noexcept {
  return fused_of(key) >= Fused::relu && fused_of(key) <= Fused::relu_bits_bias;
}
inline bool writes_bits(const PlanKey& key) noexcept {
  return fused_of(key) == Fused::relu_bits || fused_of(key) == Fused::relu_bits_bias;
}
inline bool has_mask(const PlanKey& key) noexcept {
  return fused_of(key) == Fused::mask || fused_of(key) == Fused::mask_sums;
}
inline bool has_bits(const PlanKey& key) noexcept { return writes_bits(key) || has_mask(key); }
inline bool has_column_sums(const PlanKey& key) noexcept { return fused_of(key) == Fused::mask_sums; }
inline bool has_a_sums(const PlanKey& key) noexcept { return fused_of(key) == Fused::a_sums; }

/// The key with less in the library's kernel; kMostAlignment for addresses that it no longer has.
inline PlanKey with_fused(PlanKey key, Fused fused) noexcept {
  key.fused = static_cast<std::int32_t>(fused);
  key.bias_align = has_bias(key) || has_column_sums(key) || has_a_sums(key) ? key.bias_align : kMostAlignment;
  key.bits_align = has_bits(key) ? key.bits_align : kMostAlignment;
  return key;
}
/// The product without what follows it.
inline PlanKey plain(const PlanKey& key) noexcept { return with_fused(key, Fused::nothing); }
/// The key to try next if the library cannot fuse all steps of `key`, or is slower when it does.
inline PlanKey simpler(const PlanKey& key) noexcept {
  switch (fused_of(key)) {
    case Fused::relu_bits: return with_fused(key, Fused::relu);
    case Fused::relu_bits_bias: return with_fused(key, Fused::relu_bias);
    case Fused::mask_sums: return with_fused(key, Fused::mask);
    default: return plain(key);
  }
}

/// Scratch memory that an algorithm may ask for: what NVIDIA recommends for Hopper.
inline constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;

}  // namespace tandem::inline v0::kernels::gpu
