#pragma once

#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

/// Internal: the place of small tensors that ranks compare or exchange. They stay on the CPU, which every backend
/// supports, whatever the device that computes.
inline TensorOptions on_cpu(DType dtype) { return {.dtype = dtype, .device = Device(DeviceType::cpu, 0)}; }

}  // namespace tandem::inline v0::parallel
