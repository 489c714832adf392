#pragma once

#include "problem.h"

// The arithmetic, run when the stream gets there.

namespace emulated_gpu::cublaslt {

/// A problem with its operands: everything that a queued task needs.
struct Product {
  Problem problem;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  double alpha = 1;
  double beta = 0;
  bool tf32 = false;         ///< A's and B's elements are rounded to TF32
  std::int64_t block = 128;  ///< as many products are summed before they go to the total: the order of summation
  void* workspace = nullptr;
};

/// The whole of it.
void multiply(const Product& product);
/// Split-K, first kernel: the sums over the halves of k, to the workspace.
void multiply_halves(const Product& product);
/// Split-K, second kernel: adds the halves and applies the epilogue.
void reduce_halves(const Product& product);

/// Bytes of workspace for split-K.
std::size_t split_workspace(const Problem& problem);

}  // namespace emulated_gpu::cublaslt
