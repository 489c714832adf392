#pragma once

#include "problem.h"

namespace emulated_gpu::cublaslt {

// The synthetic algorithms. Each exists on the fast path (tensor cores) and on a slow path, which does not round its
// inputs, for f32 operands that lack TF32's alignment.
enum AlgoId : std::int32_t {
  kSplitK = 1,       // two kernels and a workspace
  kLongBlocks = 2,   // one kernel
  kShortBlocks = 3,  // one kernel with another order of summation
  kSlow = 10,        // added to the ids above on the slow path
};

inline bool is_split(const Algo& algo) { return algo.id % kSlow == kSplitK; }

/// Fills `algos` with the algorithms for this problem under the preference, best first. Returns their number.
int candidates(const Problem& problem, const Preference& preference, cublasLtMatmulHeuristicResult_t* algos, int room);

/// Checks whether the algorithm can compute this problem, apart from pointers. Sets the workspace that it needs and its
/// waves.
cublasStatus_t check_algo(const Algo& algo, const Problem& problem, std::size_t& workspace, float& waves);

}  // namespace emulated_gpu::cublaslt
