#include "algo.h"

#include "hostile.h"

#include "emulated_gpu.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace emulated_gpu::cublaslt {

namespace {

// The TF32 tensor cores load 16 bytes at a time.
bool aligned_for_tf32(const Problem& problem, std::uint16_t alignment_a, std::uint16_t alignment_b) {
  const auto aligned = [&](const Matrix& matrix) { return matrix.ld % 4 == 0 && matrix.stride % 4 == 0; };
  return alignment_a >= 16 && alignment_b >= 16 && aligned(problem.a) && aligned(problem.b);
}

bool can_round_to_tf32(const Problem& problem) { return problem.compute == CUBLAS_COMPUTE_32F_FAST_TF32; }

std::uint64_t numerics_of(const Problem& problem, bool slow) {
  if (problem.compute == CUBLAS_COMPUTE_64F) {
    return CUBLASLT_NUMERICAL_IMPL_FLAGS_DMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F |
           CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
  }
  const std::uint64_t sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  switch (problem.a.type) {
    case CUDA_R_16BF: return sums | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
    case CUDA_R_16F: return sums | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
    default: break;
  }
  return can_round_to_tf32(problem) && !slow
             ? sums | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32
             : sums | CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
}

// Tiles of 128 x 128 over the multiprocessors. Each algorithm counts as slightly worse than the previous one.
float waves_of(const Algo& algo, const Problem& problem) {
  constexpr std::int64_t kTile = 128;
  constexpr int kMultiprocessors = 132;
  const std::int64_t tiles = (problem.m + kTile - 1) / kTile * ((problem.n + kTile - 1) / kTile) * problem.batch;
  const int multiprocessors = problem.multiprocessors > 0 ? problem.multiprocessors : kMultiprocessors;
  return static_cast<float>(tiles * (algo.id % kSlow)) / static_cast<float>(multiprocessors);
}

}  // namespace

cublasStatus_t check_algo(const Algo& algo, const Problem& problem, std::size_t& workspace, float& waves) {
  const std::int32_t kind = algo.id % kSlow;
  const bool slow = algo.id >= kSlow;
  if (algo.magic != kAlgoMagic || kind < kSplitK || kind > kShortBlocks || algo.id > kSlow + kShortBlocks) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algo is not initialised");
  }
  if (algo.in_type != problem.a.type || algo.out_type != problem.d.type || algo.compute != problem.compute ||
      algo.epilogue != problem.epilogue) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algo was chosen for other types or another epilogue");
  }
  if (algo.split_k != parts_of(algo, problem) ||
      algo.reduction != (is_split(algo) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE) ||
      (is_split(algo) && problem.k < 2)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the algo does not split k like this");
  }
  const bool needs_slow =
      can_round_to_tf32(problem) && !aligned_for_tf32(problem, algo.alignment[0], algo.alignment[1]);
  if (needs_slow && !slow) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "TF32 needs leading dimensions and strides of multiples of 16 bytes");
  }
  workspace = workspace_of(algo, problem);
  waves = waves_of(algo, problem);
  return CUBLAS_STATUS_SUCCESS;
}

int candidates(const Problem& problem, const Preference& preference, cublasLtMatmulHeuristicResult_t* algos, int room) {
  Algo algo{.in_type = static_cast<std::uint8_t>(problem.a.type),
            .out_type = static_cast<std::uint8_t>(problem.d.type),
            .compute = static_cast<std::uint8_t>(problem.compute),
            .epilogue = static_cast<std::uint16_t>(problem.epilogue)};
  const Matrix* const matrices[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t alignment = preference.alignment[i];
    if (alignment < bytes_of(matrices[i]->type) || !std::has_single_bit(alignment)) {
      refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a MIN_ALIGNMENT below the size of an element, or not a power of 2");
      return 0;
    }
    algo.alignment[i] = static_cast<std::uint16_t>(std::min(alignment, std::uint32_t{256}));
  }
  algo.alignment[4] = has_bias(problem.epilogue) ? alignment_of(problem.bias, 16) : std::uint16_t{1};
  algo.alignment[5] = has_mask(problem.epilogue) ? alignment_of(problem.aux, 16) : std::uint16_t{1};
  const bool slow = can_round_to_tf32(problem) && !aligned_for_tf32(problem, algo.alignment[0], algo.alignment[1]);
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  for (const AlgoId kind : {kSplitK, kLongBlocks, kShortBlocks}) {
    algo.id = kind + (slow ? kSlow : 0);
    const bool split = kind == kSplitK;
    algo.split_k = parts_of(algo, problem);
    algo.reduction = split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    if (split && (problem.k < 2 || (preference.reduction_mask & algo.reduction) == 0)) {
      continue;
    }
    cublasLtMatmulHeuristicResult_t result{};
    result.state = check_algo(algo, problem, result.workspaceSize, result.wavesCount);
    const bool allowed = (numerics_of(problem, slow) & ~preference.impl_mask) == 0 &&
                         (preference.max_waves == 0 || result.wavesCount <= preference.max_waves);
    if (result.state != CUBLAS_STATUS_SUCCESS || !allowed || result.workspaceSize > preference.max_workspace) {
      continue;
    }
    put(result.algo, algo);
    found.push_back(result);
  }
  spoil(problem, found, static_cast<std::size_t>(room));
  const auto count = std::min(found.size(), static_cast<std::size_t>(room));
  std::copy_n(found.begin(), count, algos);
  return static_cast<int>(count);
}

}  // namespace emulated_gpu::cublaslt

using namespace emulated_gpu::cublaslt;
using emulated_gpu::refuses_call;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference_, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (const auto status = check_handle(handle); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (preference_ == nullptr || results == nullptr || returned == nullptr || requested < 1) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no preference, or no room for an algo");
  }
  *returned = 0;
  const auto preference = content_of<Preference>(*preference_);
  if (preference.magic != kPreferenceMagic) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the preference is not initialised");
  }
  if (preference.search_mode != CUBLASLT_SEARCH_BEST_FIT) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "only SEARCH_BEST_FIT is emulated");
  }
  Problem problem;
  if (const auto status = read_problem(desc, a, b, c, d, problem); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (refuses_call("cublasLtMatmulAlgoGetHeuristic")) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "told to refuse");
  }
  *returned = candidates(problem, preference, results, requested);
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algo fits the preference");
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (const auto status = check_handle(handle); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (algo == nullptr || result == nullptr) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algo, or no place for the result");
  }
  Problem problem;
  if (const auto status = read_problem(desc, a, b, c, d, problem); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto proposed = content_of<Algo>(*algo);
  auto status = check_algo(proposed, problem, result->workspaceSize, result->wavesCount);
  if (status == CUBLAS_STATUS_SUCCESS && refuses_foreign(problem, proposed)) {
    status = refuse(CUBLAS_STATUS_NOT_SUPPORTED, "hostile: not this algo");
  }
  result->state = status;
  return status;
}

}  // extern "C"
