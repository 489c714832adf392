#pragma once

#include "descriptor.h"

// What graphs and their execution ask of descriptors.

namespace emulated_gpu::cudnn {

inline constexpr auto kSuccess = CUDNN_STATUS_SUCCESS;
inline constexpr auto kBad = CUDNN_STATUS_BAD_PARAM;
inline constexpr std::int64_t kWorkspace = 512;  // of the engine that needs some

inline bool is_virtual(const Object& tensor) { return tensor.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0; }
inline bool is_by_value(const Object& tensor) { return tensor.number(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0; }
inline std::int64_t number_of(const Object& tensor) { return tensor.number(CUDNN_ATTR_TENSOR_UNIQUE_ID); }
inline std::int64_t type_of(const Object& tensor) { return tensor.number(CUDNN_ATTR_TENSOR_DATA_TYPE); }
inline const std::vector<std::int64_t>& sizes_of(const Object& tensor) {
  return tensor.at(CUDNN_ATTR_TENSOR_DIMENSIONS).numbers;
}
inline std::int64_t numel_of(const Object& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes_of(tensor)) {
    count *= size;
  }
  return count;
}

/// An operation's tensors; without a second input it has none there.
struct Operands {
  Held first, second, result;
};
inline const Object& pointwise_of(const Object& operation) {
  return *operation.object(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
}
/// Refused unless the operation has the attributes that its mode wants, and no others.
cudnnStatus_t read_operation(const Object& operation, Operands& operands);

}  // namespace emulated_gpu::cudnn
