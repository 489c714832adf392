#include <tandem/kernels/cuda/matmul/plan.h>

#include <cstdint>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/kernels/matmul.h>

namespace tandem::inline v0::kernels::gpu {

namespace {

// Sums of a split k that are added in place are added in the order in which blocks come.
constexpr auto kInOrder =
    static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE);

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDA_R_64F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t what, T value) {
  require(cublasLtMatmulDescSetAttribute(&operation, what, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t what, T value) {
  require(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
}

void describe_matrix(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                     std::int64_t stride, std::int64_t batch, std::int64_t step) {
  require(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                   stride),
          "cublasLtMatrixLayoutInit");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    require(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "cublasLtMatrixLayoutSetAttribute");
    require(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)),
            "cublasLtMatrixLayoutSetAttribute");
  }
}

cublasLtEpilogue_t epilogue_of(Fused fused) {
  switch (fused) {
    case Fused::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Fused::relu: return CUBLASLT_EPILOGUE_RELU;
    case Fused::relu_bias: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Fused::relu_bits: return CUBLASLT_EPILOGUE_RELU_AUX;
    case Fused::relu_bits_bias: return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case Fused::mask: return CUBLASLT_EPILOGUE_DRELU;
    case Fused::mask_sums: return CUBLASLT_EPILOGUE_DRELU_BGRAD;
    case Fused::a_sums: return CUBLASLT_EPILOGUE_BGRADB;
    default: break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

cublasComputeType_t compute_type(const PlanKey& key) {
  const auto type = static_cast<DType>(key.type);
  if (type == DType::f64) {
    return CUBLAS_COMPUTE_64F;
  }
  return type == DType::f32 && key.tf32 != 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

void throw_status(cublasStatus_t status, const char* call) {
  const std::string failure =
      fmt::format("cuBLASLt: {} ({}), from {}", cublasLtGetStatusString(status), cublasLtGetStatusName(status), call);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    cuda::fail_without_room(failure);
  }
  fail<DeviceError>("{}", failure);
}

void set_addresses(cublasLtMatmulDescOpaque_t& operation, const PlanKey& key, const void* bias_or_sums,
                   const void* bits) {
  if (has_bias(key) || has_column_sums(key) || has_a_sums(key)) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_or_sums);
  }
  if (has_bits(key)) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, bits);
  }
}

Plan describe(const PlanKey& key) {
  Plan plan{};
  const auto type = type_of(static_cast<DType>(key.type));
  require(cublasLtMatmulDescInit(&plan.operation, compute_type(key), type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescInit");
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed != 0 ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed != 0 ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(fused_of(key)));
  // Alignments are read from addresses, which are not followed before a product is started.
  const auto address = [](std::int32_t align) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(align)); };
  set_addresses(plan.operation, key, address(key.bias_align), address(key.bits_align));
  if (has_bits(key)) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8 * relu_bits_stride(key.n));
  }
  const auto [b_rows, b_columns] = key.b_transposed != 0 ? std::pair(key.k, key.n) : std::pair(key.n, key.k);
  const auto [a_rows, a_columns] = key.a_transposed != 0 ? std::pair(key.m, key.k) : std::pair(key.k, key.m);
  describe_matrix(plan.first, type, b_rows, b_columns, key.ldb, key.batch, key.b_step);
  describe_matrix(plan.second, type, a_rows, a_columns, key.lda, key.batch, key.a_step);
  describe_matrix(plan.result, type, key.n, key.m, key.ldd, key.batch, key.d_step);
  return plan;
}

std::vector<Candidate> candidates_for(cublasLtHandle_t handle, const PlanKey& key, Plan& plan, int most) {
  cublasLtMatmulPreferenceOpaque_t preference;
  require(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.b_align));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.a_align));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.d_align));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.d_align));
  if (key.deterministic != 0) {
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kInOrder);
  }
  struct Result {  // a name for the library's unnamed struct
    cublasLtMatmulHeuristicResult_t value;
  };
  std::vector<Result> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, &plan.operation, &plan.first, &plan.second, &plan.result, &plan.result,
                                     &preference, most, &results[0].value, &count);
  // For products with a simpler form, other error codes mean "not supported" too; the code depends on the library's
  // version.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status != CUBLAS_STATUS_SUCCESS && fused_of(key) != Fused::nothing)) {
    return {};
  }
  require(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i].value;
    if (result.state == CUBLAS_STATUS_SUCCESS) {
      found.push_back({result.algo, result.workspaceSize});
    }
  }
  return found;
}

bool adopt(cublasLtHandle_t handle, const PlanKey& key, Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  if (cublasLtMatmulAlgoCheck(handle, &plan.operation, &plan.first, &plan.second, &plan.result, &plan.result,
                              &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > kMostWorkspace) {
    return false;
  }
  std::uint32_t scheme = 0;
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme),
                                           &written) != CUBLAS_STATUS_SUCCESS ||
      (key.deterministic != 0 && (scheme & ~kInOrder) != 0)) {
    return false;
  }
  plan.algorithm = algorithm;
  plan.workspace = result.workspaceSize;
  plan.adopted = true;
  return true;
}

}  // namespace tandem::inline v0::kernels::gpu
