#pragma once

#include <tandem/tensor/tensor.h>
#include <tandem/tensor/view.h>

namespace tandem::test {

/// The address of the tensor's first element on any device, for comparing, never for reading.
inline const void* memory_of(const Tensor& tensor) { return tensor.raw().data(); }

}  // namespace tandem::test
