#pragma once

#include <cstddef>
#include <vector>

#include <cublasLt.h>

#include <tandem/kernels/cuda/matmul/plan_key.h>

// Internal: a matrix product as cuBLASLt is asked for it. Our matrices are row-major and cuBLASLt is fast column by
// column, so it is given everything transposed: D^T = B^T A^T. Its first operand is our b, its rows are our columns,
// and its bias, one value for each of its rows, is ours. A column of its ReLU's bits is a row of ours; BGRADB sums our
// a.

namespace tandem::inline v0::kernels::gpu {

/// A product that can be started with nothing more than addresses.
struct Plan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, result;  // cuBLASLt's A, B, D
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
  int kernels;     // that it launches; 0 when nobody has counted
  double time_us;  // 0 when nobody has measured
  bool adopted;    // the algorithm is not the library's present choice, but comes from a file
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

/// Where the key's kernel finds what it reads or writes besides the matrices.
void set_addresses(cublasLtMatmulDescOpaque_t& operation, const PlanKey& key, const void* bias_or_sums,
                   const void* bits);
/// Descriptors for a key, without an algorithm. A bias, sums and bits have addresses of the key's alignment and no
/// more.
Plan describe(const PlanKey& key);
/// Returns cuBLASLt's offers, best first: at most `most`, and none if cuBLASLt cannot compute the product.
std::vector<Candidate> candidates_for(cublasLtHandle_t handle, const PlanKey& key, Plan& plan, int most);
/// Gives `plan`, which describes the key, an algorithm that comes from a file; false if cuBLASLt or the key refuses it.
bool adopt(cublasLtHandle_t handle, const PlanKey& key, Plan& plan, const cublasLtMatmulAlgo_t& algorithm);

}  // namespace tandem::inline v0::kernels::gpu
