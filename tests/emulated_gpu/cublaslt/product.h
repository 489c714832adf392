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
  bool backwards = false;    ///< add blocks and parts from the last one on
  int parts = 1;             ///< of k, with split-K
  void* workspace = nullptr;
};

/// Computes the whole product.
void multiply(const Product& product);
/// Writes the sums over one part of k to the workspace.
void multiply_part(const Product& product, int part);
/// Adds all parts to the first one.
void add_parts(const Product& product);
/// Applies the epilogue to the first part and writes D.
void finish_part(const Product& product);

/// Bytes of workspace that the sums over one part of k need.
std::size_t bytes_of_part(const Problem& problem);

}  // namespace emulated_gpu::cublaslt
