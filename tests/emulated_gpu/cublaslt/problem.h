#pragma once

#include "descriptors.h"

#include <cstddef>

// A matrix product as given by the descriptors, after checking.

namespace emulated_gpu::cublaslt {

/// The layout of a matrix; column-major.
struct Matrix {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t ld = 0;
  std::int64_t stride = 0;  // distance to the next matrix of the batch
};

/// D = epilogue(alpha * op(A) * op(B) + beta * C), for a batch of matrices D with m rows and n columns.
struct Problem {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool trans_a = false;
  bool trans_b = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  Matrix a, b, c, d;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  unsigned char* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int64_t aux_stride = 0;
  int multiprocessors = 0;
};

/// Reports the reason of a refusal on stderr if CUBLASLT_LOG_LEVEL is set and not 0. Returns `status`.
cublasStatus_t refuse(cublasStatus_t status, const char* why);

/// Checks that the handle is valid and was made for the current device.
cublasStatus_t check_handle(cublasLtHandle_t handle);

/// Reads the descriptors. A null `c` stands for D's layout.
cublasStatus_t read_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Problem& problem);

std::size_t bytes_of(cudaDataType type);
/// Whether the epilogue reads a bias or writes a bias gradient.
bool has_bias(std::uint32_t epilogue);
/// Whether the epilogue writes a bias gradient.
bool has_bias_gradient(std::uint32_t epilogue);
/// Whether the epilogue writes or reads the bit mask of RELU.
bool has_mask(std::uint32_t epilogue);
/// Whether the epilogue writes the bit mask.
bool writes_mask(std::uint32_t epilogue);

/// The largest power of 2 that divides the address, at most `limit`.
std::uint16_t alignment_of(const void* address, std::uint16_t limit);

}  // namespace emulated_gpu::cublaslt
