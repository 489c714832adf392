#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cublasLt.h>

#include <tandem/kernels/matmul.h>

// Internal: a matrix product as cuBLASLt is asked for it. Our matrices are row-major and cuBLASLt is fast column by
// column, so it is given everything transposed: D^T = B^T A^T. Its first operand is our b, its rows are our columns, and
// its bias, one value for each of its rows, is ours.

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
  const auto address =
      reinterpret_cast<std::uintptr_t>(pointer) | static_cast<std::uintptr_t>(step) | kMostAlignment;
  return static_cast<std::int32_t>(address & (~address + 1));
}

/// A product that can be started with nothing more than addresses.
struct Plan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, result;  // cuBLASLt's A, B, D
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
  int kernels;      // that it launches; 0 when nobody has counted
  double time_us;   // 0 when nobody has measured
};

/// A candidate, by cuBLASLt's own guess from the fastest on.
struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

/// Throws DeviceError naming the call unless it went well.
[[noreturn]] void throw_status(cublasStatus_t status, const char* call);
inline void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    throw_status(status, call);
  }
}

/// Descriptors for a key, without an algorithm.
Plan describe(const PlanKey& key);
/// What cuBLASLt offers: at most `most`, none if it cannot.
std::size_t candidates_for(cublasLtHandle_t handle, const PlanKey& key, Plan& plan, Candidate* found, std::size_t most);

}  // namespace tandem::inline v0::kernels::gpu
