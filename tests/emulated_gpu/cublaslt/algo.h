#pragma once

#include "problem.h"

namespace emulated_gpu::cublaslt {

// The synthetic algorithms. Each exists on the fast path (tensor cores) and, for f32 whose operands are not aligned as
// TF32 needs, on a slow one that does not round its inputs.
enum AlgoId : std::int32_t {
  kSplitK = 1,       // two kernels and a workspace
  kLongBlocks = 2,   // one kernel
  kShortBlocks = 3,  // one kernel, another order of summation
  kSlow = 10,        // added to the others
};

inline bool is_split(const Algo& algo) { return algo.id % kSlow == kSplitK; }

/// Fills `algos` with what there is for this problem under the preference, best first; returns how many.
int candidates(const Problem& problem, const Preference& preference, cublasLtMatmulHeuristicResult_t* algos, int room);

/// Whether the algo can compute this, apart from pointers; the workspace that it needs and its waves.
cublasStatus_t check_algo(const Algo& algo, const Problem& problem, std::size_t& workspace, float& waves);

}  // namespace emulated_gpu::cublaslt
