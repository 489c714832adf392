#pragma once

#include <tandem/kernels/matmul.h>

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

/// What cuBLASLt did not do of a product's end, in place: + bias, max(., 0), the mask, and then bits and sums;
/// `product` has them where they are to be done. With `clear` there was no sum: it begins at 0, or at what is there if
/// `product` accumulates.
void finish_product(const Queue& queue, const Matmul& product, bool clear);

}  // namespace gpu
}  // namespace tandem::inline v0::kernels
