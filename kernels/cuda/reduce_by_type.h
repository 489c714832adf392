#pragma once

#include <tandem/kernels/cuda/queue.h>
#include <tandem/kernels/reduce.h>

// Internal: reductions by type, each compiled in a file of its own.

namespace tandem::inline v0::kernels {

template <class T>
void reduce_on_gpu(const Queue& queue, const Reduce& kernel);

}  // namespace tandem::inline v0::kernels
