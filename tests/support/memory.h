#pragma once

#include <tandem/tensor/tensor.h>
#include <tandem/tensor/view.h>

namespace tandem::test {

/// Where the tensor's first element is, on any device: to compare with, not to read from.
inline const void* memory_of(const Tensor& tensor) { return tensor.raw().data(); }

}  // namespace tandem::test
