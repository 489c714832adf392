#pragma once

#include "../hostility.h"
#include "algo.h"
#include "product.h"

#include <cuda_runtime.h>

#include <vector>

// The hostile cuBLASLt: what its documentation does not promise, it does not do.

namespace emulated_gpu::cublaslt {

/// The mood towards a problem whose operands have these alignments: A, B, C, D, bias, aux.
Hostility mood_of(const Problem& problem, const std::uint16_t (&alignment)[6]);

/// Parts of k that the algorithm sums separately, and bytes of workspace that it demands.
int parts_of(const Algo& algo, const Problem& problem);
std::size_t workspace_of(const Algo& algo, const Problem& problem);

/// Leaves out some of the results of a search, or all of them where other calls can compute the same, and mixes the
/// rest with results that are not usable. `room` is the number of results that fit.
void spoil(const Problem& problem, std::vector<cublasLtMatmulHeuristicResult_t>& results, std::size_t room);

/// Whether the library refuses to compute the problem with an algorithm that it has proposed.
bool refuses_product(const Problem& problem, const Algo& algo);
/// Whether the library refuses an algorithm from elsewhere, such as a file.
bool refuses_foreign(const Problem& problem, const Algo& algo);

/// Runs the product in several kernels. Those fill the workspace, and results that are still to be written, with
/// garbage.
cudaError_t launch_hostile(Product product, const Algo& algo, std::size_t workspace_size, cudaStream_t stream);

}  // namespace emulated_gpu::cublaslt
