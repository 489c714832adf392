#pragma once

#include <cudnn.h>

#include <tandem/core/dtype.h>

namespace tandem::inline v0::kernels::gpu::cudnn {

/// cuDNN's name for a floating type.
inline cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
