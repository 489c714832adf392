#pragma once

#include <tandem/kernels/matmul.h>

namespace tandem::inline v0::kernels {

class Queue;

namespace gpu {

/// Does in place the part of a product's end that cuBLASLt left out: + bias, max(., 0), the mask, and then bits and
/// sums. `product` names the steps that are due. With `clear` there was no sum, so the result begins at 0, or at the
/// old elements if `product` accumulates.
void finish_product(const Queue& queue, const Matmul& product, bool clear);

}  // namespace gpu
}  // namespace tandem::inline v0::kernels
