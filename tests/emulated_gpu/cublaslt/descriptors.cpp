#include "descriptors.h"

#include <cstddef>
#include <new>

// As in the library, setting a value checks only its size. The value is checked at use.

namespace {

using namespace emulated_gpu::cublaslt;

struct Attribute {
  int id;
  std::size_t offset;
  std::size_t size;
};

#define TANDEM_ATTRIBUTE(id, type, field) {id, offsetof(type, field), sizeof(type::field)}

constexpr Attribute kMatmulAttributes[] = {
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDesc, compute),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulDesc, scale),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulDesc, pointer_mode),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDesc, trans_a),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDesc, trans_b),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, MatmulDesc, trans_c),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, MatmulDesc, fill_mode),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDesc, epilogue),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDesc, bias),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulDesc, bias_stride),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, MatmulDesc, aux),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, MatmulDesc, aux_ld),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, MatmulDesc, aux_stride),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, MatmulDesc, alpha_stride),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, MatmulDesc, sm_count_target),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, MatmulDesc, pointers[0]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, MatmulDesc, pointers[1]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, MatmulDesc, pointers[2]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, MatmulDesc, pointers[3]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, MatmulDesc, pointers[4]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, MatmulDesc, aux_type),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, MatmulDesc, pointers[5]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER, MatmulDesc, pointers[6]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, MatmulDesc, fast_accum),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, MatmulDesc, bias_type),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, MatmulDesc, scale_modes[0]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, MatmulDesc, scale_modes[1]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_C_SCALE_MODE, MatmulDesc, scale_modes[2]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, MatmulDesc, scale_modes[3]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE, MatmulDesc, scale_modes[4]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, MatmulDesc, pointers[7]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, MatmulDesc, scale_modes[5]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, MatmulDesc, pointers[8]),
};

constexpr Attribute kLayoutAttributes[] = {
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, cols),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batch),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, stride),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, Layout, plane_offset),
    TANDEM_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, Layout, batch_mode),
};

constexpr Attribute kPreferenceAttributes[] = {
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search_mode),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, max_workspace),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reduction_mask),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Preference, alignment[0]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Preference, alignment[1]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Preference, alignment[2]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Preference, alignment[3]),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, Preference, max_waves),
    TANDEM_ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, Preference, impl_mask),
};

constexpr Attribute kAlgoAttributes[] = {
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_ID, Algo, id),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_TILE_ID, Algo, tile),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, Algo, split_k),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, Algo, reduction),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, Algo, swizzling),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, Algo, custom),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_STAGES_ID, Algo, stages),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, Algo, inner_shape),
    TANDEM_ATTRIBUTE(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, Algo, cluster_shape),
};

template <std::size_t kCount>
const Attribute* find(const Attribute (&attributes)[kCount], int id) {
  for (const Attribute& attribute : attributes) {
    if (attribute.id == id) {
      return &attribute;
    }
  }
  return nullptr;
}

template <std::size_t kCount>
cublasStatus_t set(const Attribute (&attributes)[kCount], void* opaque, int id, const void* from, std::size_t size) {
  const Attribute* attribute = find(attributes, id);
  if (attribute == nullptr || opaque == nullptr || from == nullptr || size != attribute->size) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(static_cast<char*>(opaque) + attribute->offset, from, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <std::size_t kCount>
cublasStatus_t get(const Attribute (&attributes)[kCount], const void* opaque, int id, void* into, std::size_t size,
                   std::size_t* written) {
  const Attribute* attribute = find(attributes, id);
  if (attribute == nullptr || opaque == nullptr || (size == 0 ? written == nullptr : into == nullptr) ||
      (size != 0 && size != attribute->size)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (written != nullptr) {
    *written = attribute->size;
  }
  if (size != 0) {
    std::memcpy(into, static_cast<const char*>(opaque) + attribute->offset, size);
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque, class Content>
cublasStatus_t init(Opaque* opaque, std::size_t size, const Content& content) {
  if (opaque == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (size < sizeof *opaque) {
    return CUBLAS_STATUS_ALLOC_FAILED;
  }
  put(*opaque, content);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque, class Content>
cublasStatus_t create(Opaque** opaque, const Content& content) {
  if (opaque == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *opaque = new (std::nothrow) Opaque;
  return *opaque == nullptr ? CUBLAS_STATUS_ALLOC_FAILED : init(*opaque, sizeof **opaque, content);
}

MatmulDesc matmul_desc(cublasComputeType_t compute, cudaDataType_t scale) {
  return {.compute = compute, .scale = scale};
}
Layout layout(cudaDataType type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  return {.type = static_cast<std::uint32_t>(type), .rows = rows, .cols = cols, .ld = ld};
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  return init(desc, size, matmul_desc(compute, scale));
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return create(desc, matmul_desc(compute, scale));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t id,
                                              const void* from, size_t size) {
  return set(kMatmulAttributes, desc, id, from, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t id, void* into,
                                              size_t size, size_t* written) {
  return get(kMatmulAttributes, desc, id, into, size, written);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matrix, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  return init(matrix, size, layout(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matrix, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return create(matrix, layout(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  delete matrix;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t id,
                                                const void* from, size_t size) {
  return set(kLayoutAttributes, matrix, id, from, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t id,
                                                void* into, size_t size, size_t* written) {
  return get(kLayoutAttributes, matrix, id, into, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  return init(preference, size, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t id, const void* from,
                                                    size_t size) {
  return set(kPreferenceAttributes, preference, id, from, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t id, void* into, size_t size,
                                                    size_t* written) {
  return get(kPreferenceAttributes, preference, id, into, size, written);
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t id,
                                                    const void* from, size_t size) {
  if (id == CUBLASLT_ALGO_CONFIG_ID) {  // read-only
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return set(kAlgoAttributes, algo, id, from, size);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t id, void* into, size_t size,
                                                    size_t* written) {
  return get(kAlgoAttributes, algo, id, into, size, written);
}

}  // extern "C"
