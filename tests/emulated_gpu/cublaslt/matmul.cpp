#include "hostile.h"

#include "emulated_gpu.h"

#include <cuda_runtime.h>

#include <iterator>

namespace emulated_gpu::cublaslt {

namespace {

constexpr auto kSuccess = CUBLAS_STATUS_SUCCESS;
constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

// On a GPU, a kernel with another address would stop with an illegal access sooner or later.
bool on_device(const void* address) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, address) == cudaSuccess && attributes.type != cudaMemoryTypeUnregistered;
}

// Chooses an algorithm for these addresses, as the library does by itself.
cublasStatus_t choose(const Product& product, std::size_t workspace, Algo& algo) {
  Preference preference;
  preference.max_workspace = product.workspace == nullptr ? 0 : workspace;
  const void* const addresses[] = {product.a, product.b, product.c, product.d};
  for (int i = 0; i < 4; ++i) {
    preference.alignment[i] = alignment_of(addresses[i], 256);
  }
  cublasLtMatmulHeuristicResult_t results[8];
  const int count = candidates(product.problem, preference, results, static_cast<int>(std::size(results)));
  for (int i = 0; i < count; ++i) {
    if (results[i].state == kSuccess) {
      algo = content_of<Algo>(results[i].algo);
      return kSuccess;
    }
  }
  return refuse(kUnsupported, "no algo for these operands");
}

cublasStatus_t check_addresses(const Product& product, const Algo& algo) {
  const Problem& problem = product.problem;
  const void* const addresses[] = {product.a,
                                   product.b,
                                   product.c,
                                   product.d,
                                   has_bias(problem.epilogue) ? problem.bias : nullptr,
                                   has_mask(problem.epilogue) ? problem.aux : nullptr};
  for (std::size_t i = 0; i < std::size(addresses); ++i) {
    if (addresses[i] == nullptr) {
      continue;
    }
    if (alignment_of(addresses[i], algo.alignment[i]) < algo.alignment[i]) {
      return refuse(kUnsupported, "an address is less aligned than the algo was asked for");
    }
    if (!on_device(addresses[i])) {
      return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "an address is not memory of the device");
    }
  }
  if (product.d == product.a || product.d == product.b) {
    return refuse(kInvalid, "D is also A or B");
  }
  // Outputs of the epilogue other than D.
  const void* const written[] = {has_bias_gradient(problem.epilogue) ? problem.bias : nullptr,
                                 writes_mask(problem.epilogue) ? problem.aux : nullptr};
  for (const void* address : written) {
    if (address != nullptr &&
        (address == product.a || address == product.b || address == product.c || address == product.d)) {
      return refuse(kInvalid, "a bias gradient or a mask is written to A, B, C or D");
    }
  }
  const bool same = problem.c.ld == problem.d.ld && problem.c.stride == problem.d.stride;
  if (product.c == product.d && !same) {
    return refuse(kInvalid, "D is also C, but not with the same layout");
  }
  return kSuccess;
}

cublasStatus_t launch(Product product, const Algo& algo, std::size_t workspace_size, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  if (mood_of(product.problem, algo.alignment).on()) {
    error = launch_hostile(product, algo, workspace_size, stream);
  } else if (is_split(algo)) {
    product.parts = parts_of(algo, product.problem);
    error = enqueue(stream, "cublaslt_split_k", [product] {
      for (int part = 0; part < product.parts; ++part) {
        multiply_part(product, part);
      }
    });
    if (error == cudaSuccess) {
      error = enqueue(stream, "cublaslt_split_k_reduce", [product] {
        add_parts(product);
        finish_part(product);
      });
    }
  } else {
    error = enqueue(stream, "cublaslt_matmul", [product] { multiply(product); });
  }
  return error == cudaSuccess ? kSuccess : refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorString(error));
}

double scalar(const Problem& problem, const void* value) {
  return problem.compute == CUBLAS_COMPUTE_64F ? *static_cast<const double*>(value)
                                               : static_cast<double>(*static_cast<const float*>(value));
}

}  // namespace

}  // namespace emulated_gpu::cublaslt

using namespace emulated_gpu::cublaslt;

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                                         const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                                         cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                                         cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                                         const cublasLtMatmulAlgo_t* algo_, void* workspace, size_t workspace_size,
                                         cudaStream_t stream) {
  if (const auto status = check_handle(handle); status != kSuccess) {
    return status;
  }
  Product product{.problem = {}, .a = a, .b = b, .c = c, .d = d, .workspace = workspace};
  Problem& problem = product.problem;
  if (const auto status = read_problem(desc, layout_a, layout_b, layout_c, layout_d, problem); status != kSuccess) {
    return status;
  }
  // C must not be null either: the library does not promise to look at beta first.
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) {
    return refuse(kInvalid, "A, B, C, D, alpha or beta is null");
  }
  product.alpha = scalar(problem, alpha);
  product.beta = scalar(problem, beta);
  Algo algo;
  if (algo_ != nullptr) {
    algo = content_of<Algo>(*algo_);
  } else if (const auto status = choose(product, workspace_size, algo); status != kSuccess) {
    return status;
  }
  std::size_t needed = 0;
  float waves = 0;
  if (const auto status = check_algo(algo, problem, needed, waves); status != kSuccess) {
    return status;
  }
  if ((algo_ != nullptr && refuses_product(problem, algo)) || emulated_gpu::refuses_call("cublasLtMatmul")) {
    return refuse(kUnsupported, "hostile: not this product");
  }
  if (needed > 0 && (workspace == nullptr || workspace_size < needed)) {
    return refuse(kInvalid, "less workspace than the algo needs");
  }
  if (needed > 0 && alignment_of(workspace, 16) < 16) {
    return refuse(kInvalid, "the workspace is not a multiple of 16 bytes");
  }
  if (needed > 0 && !on_device(workspace)) {
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "the workspace is not memory of the device");
  }
  if (const auto status = check_addresses(product, algo); status != kSuccess) {
    return status;
  }
  product.tf32 = problem.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && algo.id < kSlow;
  product.block = algo.id % kSlow == kShortBlocks ? 32 : 128;
  return launch(product, algo, workspace_size, stream);
}
