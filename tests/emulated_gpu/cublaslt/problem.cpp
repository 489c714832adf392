#include "problem.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace emulated_gpu::cublaslt {

namespace {

constexpr auto kSuccess = CUBLAS_STATUS_SUCCESS;
constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

struct Types {
  int compute;
  int scale;
  int in;
  int out;
};
constexpr Types kTypes[] = {
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
};

constexpr std::uint32_t kEpilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,  CUBLASLT_EPILOGUE_RELU_BIAS,
    CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU, CUBLASLT_EPILOGUE_DRELU_BGRAD,
    CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB,        CUBLASLT_EPILOGUE_GELU,  CUBLASLT_EPILOGUE_GELU_BIAS,
};

template <class Range, class Predicate>
bool any(const Range& range, Predicate predicate) {
  for (const auto& each : range) {
    if (predicate(each)) {
      return true;
    }
  }
  return false;
}

cublasStatus_t check_desc(const MatmulDesc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  if (desc.magic != kMatmulMagic) {
    return refuse(kInvalid, "the operation's descriptor is not initialised");
  }
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST) {
    return refuse(kUnsupported, "only POINTER_MODE_HOST is emulated");
  }
  const auto transposable = [](int op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; };
  if (!transposable(desc.trans_a) || !transposable(desc.trans_b)) {
    return refuse(kInvalid, "TRANSA or TRANSB is none of OP_N, OP_T, OP_C");
  }
  if (desc.trans_c != CUBLAS_OP_N || desc.fill_mode != CUBLAS_FILL_MODE_FULL) {
    return refuse(kUnsupported, "TRANSC must be OP_N, FILL_MODE must be FULL");
  }
  if (any(desc.pointers, [](const void* pointer) { return pointer != nullptr; }) ||
      any(desc.scale_modes, [](int mode) { return mode != 0; }) || desc.alpha_stride != 0 || desc.aux_type != -1) {
    return refuse(kInvalid, "scales, AMAX, a vector of alpha and types of AUX are not for these types");
  }
  const bool known = any(kTypes, [&](const Types& types) {
    return desc.compute == types.compute && desc.scale == types.scale && static_cast<int>(a.type) == types.in &&
           static_cast<int>(d.type) == types.out;
  });
  if (!known || b.type != a.type || c.type != d.type) {
    return refuse(kUnsupported, "no product for this combination of compute type, scale type and element types");
  }
  if (!any(kEpilogues, [&](std::uint32_t epilogue) { return epilogue == desc.epilogue; })) {
    return refuse(kUnsupported, "this epilogue is not emulated");
  }
  if (desc.compute == CUBLAS_COMPUTE_64F && desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return refuse(kUnsupported, "f64 has no epilogue but DEFAULT");
  }
  if (desc.bias_type != -1 && desc.bias_type != static_cast<int>(d.type)) {
    return refuse(kUnsupported, "the bias must have D's type");
  }
  return kSuccess;
}

// Only C may have ld 0, which broadcasts its one column.
cublasStatus_t read_matrix(const Layout& layout, bool may_broadcast, Matrix& matrix) {
  if (layout.order != CUBLASLT_ORDER_COL) {
    return refuse(kUnsupported, "only ORDER_COL is emulated: the epilogues exist for no other");
  }
  if (layout.batch_mode != CUBLASLT_BATCH_MODE_STRIDED || layout.plane_offset != 0) {
    return refuse(kUnsupported, "only strided batches of real matrices are emulated");
  }
  if (layout.rows == 0 || layout.cols == 0) {
    return refuse(kInvalid, "a matrix without elements");
  }
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int32_t>::max();
  if (layout.rows > kLargest || layout.cols > kLargest) {
    return refuse(kUnsupported, "a matrix of more than 2^31 - 1 rows or columns");
  }
  matrix = {.type = static_cast<cudaDataType>(layout.type),
            .rows = static_cast<std::int64_t>(layout.rows),
            .cols = static_cast<std::int64_t>(layout.cols),
            .ld = layout.ld,
            .stride = layout.batch > 1 ? layout.stride : 0};
  if (matrix.ld < matrix.rows && !(may_broadcast && matrix.ld == 0)) {
    return refuse(kInvalid, "a leading dimension below the number of rows");
  }
  if (matrix.stride < 0) {
    return refuse(kUnsupported, "negative strides of a batch are not emulated");
  }
  return kSuccess;
}

// D's matrices must not share elements: a GPU would write these in any order.
bool overlaps_itself(const Matrix& d, std::int64_t batch) {
  const bool one_after_another = d.stride >= (d.cols - 1) * d.ld + d.rows;
  const bool side_by_side = d.stride >= d.rows && (batch - 1) * d.stride + d.rows <= d.ld;
  return batch > 1 && !one_after_another && !side_by_side;
}

cublasStatus_t check_epilogue(const Problem& problem) {
  if (has_bias(problem.epilogue) && problem.bias == nullptr) {
    return refuse(kInvalid, "the epilogue needs BIAS_POINTER, also when asked for algos");
  }
  // Follows NVIDIA's nvmath-python, whose tests expect no algorithm here.
  const bool gradient =
      problem.epilogue == CUBLASLT_EPILOGUE_DRELU || problem.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD;
  if (gradient && problem.k == 1) {
    return refuse(kUnsupported, "DRELU and DRELU_BGRAD exist for no k of 1");
  }
  if ((problem.epilogue == CUBLASLT_EPILOGUE_BGRADA && problem.m == 1) ||
      (problem.epilogue == CUBLASLT_EPILOGUE_BGRADB && problem.n == 1)) {
    return refuse(kUnsupported, "BGRADA exists for no D of one row, BGRADB for none of one column");
  }
  const std::int64_t length = problem.epilogue == CUBLASLT_EPILOGUE_BGRADB ? problem.n : problem.m;
  if (has_bias_gradient(problem.epilogue) && problem.batch > 1 && problem.bias_stride < length) {
    return refuse(kInvalid, "the bias gradients of a batch overlap");
  }
  if (!has_mask(problem.epilogue)) {
    return kSuccess;
  }
  if (problem.aux == nullptr) {
    return refuse(kInvalid, "the epilogue needs EPILOGUE_AUX_POINTER, also when asked for algos");
  }
  if (alignment_of(problem.aux, 16) < 16) {
    return refuse(kUnsupported, "EPILOGUE_AUX_POINTER is not a multiple of 16 bytes");
  }
  if (problem.aux_ld < problem.m || problem.aux_ld % 128 != 0) {
    return refuse(kInvalid, "EPILOGUE_AUX_LD (bits) must be divisible by 128 and at least D's rows");
  }
  if (problem.batch > 1) {
    if (problem.aux_stride % 128 != 0 ||
        (writes_mask(problem.epilogue) && problem.aux_stride < problem.aux_ld * problem.n)) {
      return refuse(kInvalid, "EPILOGUE_AUX_BATCH_STRIDE (bits) must be divisible by 128 and hold a mask");
    }
  }
  return kSuccess;
}

}  // namespace

cublasStatus_t refuse(cublasStatus_t status, const char* why) {
  const char* level = std::getenv("CUBLASLT_LOG_LEVEL");
  if (level != nullptr && std::atoi(level) > 0) {
    std::fprintf(stderr, "emulated cuBLASLt: %s: %s\n", cublasLtGetStatusName(status), why);
  }
  return status;
}

cublasStatus_t read_problem(cublasLtMatmulDesc_t desc_, cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_,
                            cublasLtMatrixLayout_t c_, cublasLtMatrixLayout_t d_, Problem& problem) {
  if (desc_ == nullptr || a_ == nullptr || b_ == nullptr || d_ == nullptr) {
    return refuse(kInvalid, "a descriptor is null");
  }
  const auto desc = content_of<MatmulDesc>(*desc_);
  const Layout layouts[] = {content_of<Layout>(*a_), content_of<Layout>(*b_),
                            content_of<Layout>(c_ == nullptr ? *d_ : *c_), content_of<Layout>(*d_)};
  if (any(layouts, [](const Layout& layout) { return layout.magic != kLayoutMagic; })) {
    return refuse(kInvalid, "a matrix layout is not initialised");
  }
  const Layout& layout_d = layouts[3];
  if (any(layouts, [&](const Layout& layout) { return layout.batch != layout_d.batch || layout.batch < 1; })) {
    return refuse(kInvalid, "BATCH_COUNT must be at least 1 and the same for all matrices");
  }
  if (const auto status = check_desc(desc, layouts[0], layouts[1], layouts[2], layout_d); status != kSuccess) {
    return status;
  }
  Matrix* const matrices[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i) {
    if (const auto status = read_matrix(layouts[i], i == 2, *matrices[i]); status != kSuccess) {
      return status;
    }
  }
  problem.compute = static_cast<cublasComputeType_t>(desc.compute);
  problem.trans_a = desc.trans_a != CUBLAS_OP_N;
  problem.trans_b = desc.trans_b != CUBLAS_OP_N;
  problem.batch = layout_d.batch;
  problem.m = problem.d.rows;
  problem.n = problem.d.cols;
  problem.k = problem.trans_a ? problem.a.rows : problem.a.cols;
  problem.epilogue = desc.epilogue;
  problem.bias = desc.bias;
  problem.bias_stride = problem.batch > 1 ? desc.bias_stride : 0;
  problem.aux = static_cast<unsigned char*>(desc.aux);
  problem.aux_ld = desc.aux_ld;
  problem.aux_stride = problem.batch > 1 ? desc.aux_stride : 0;
  problem.multiprocessors = desc.sm_count_target;
  if ((problem.trans_a ? problem.a.cols : problem.a.rows) != problem.m ||
      (problem.trans_b ? problem.b.rows : problem.b.cols) != problem.n ||
      (problem.trans_b ? problem.b.cols : problem.b.rows) != problem.k || problem.c.rows != problem.m ||
      problem.c.cols != problem.n) {
    return refuse(kInvalid, "the matrices' sizes do not match");
  }
  if (overlaps_itself(problem.d, problem.batch)) {
    return refuse(kInvalid, "the matrices of the batch overlap in D");
  }
  return check_epilogue(problem);
}

std::size_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    default: return 2;
  }
}

bool has_bias_gradient(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
         epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_bias(std::uint32_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 || has_bias_gradient(epilogue);
}

bool has_mask(std::uint32_t epilogue) { return (epilogue & 128) != 0; }

bool writes_mask(std::uint32_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_RELU_AUX) == CUBLASLT_EPILOGUE_RELU_AUX;
}

std::uint16_t alignment_of(const void* address, std::uint16_t limit) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | limit;
  return static_cast<std::uint16_t>(bits & -bits);
}

}  // namespace emulated_gpu::cublaslt
