#pragma once

#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/matmul.h>

// Internal: exact f32 products of small batches by a kernel of our own, which also does the whole epilogue. cuBLASLt's
// ReLU loses NaN, and it has no ReLU mask, bias gradient or ReLU in f32 that we may use, so each would take a launch.

namespace tandem::inline v0::kernels::gpu {

/// True if start_small_product() can compute the product: f32 without TF32, at most 128 rows or, in a weight gradient,
/// 128 products a sum, and so few operations that launches matter more than the rate of the arithmetic.
bool is_small_product(const Matmul& product);
/// Starts a product for which is_small_product().
void start_small_product(const Queue& queue, const Matmul& product);

}  // namespace tandem::inline v0::kernels::gpu
