#pragma once

#include "problem.h"

// The arithmetic, which runs when the stream reaches it.

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
  bool tf32 = false;         ///< round the elements of A and B to TF32
  std::int64_t block = 128;  ///< products summed before they are added to the total; determines the order of summation
  void* workspace = nullptr;
};

/// Computes the whole product.
void multiply(const Product& product);
/// First kernel of split-K: writes the sums over both halves of k to the workspace.
void multiply_halves(const Product& product);
/// Second kernel of split-K: adds the halves and applies the epilogue.
void reduce_halves(const Product& product);

/// Bytes of workspace that split-K needs.
std::size_t split_workspace(const Problem& problem);

}  // namespace emulated_gpu::cublaslt
