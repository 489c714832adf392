#pragma once

#include "descriptor.h"

// Reads operations and tensors from descriptors, for graphs and their execution.

namespace emulated_gpu::cudnn {

inline constexpr auto kSuccess = CUDNN_STATUS_SUCCESS;
inline constexpr auto kBad = CUDNN_STATUS_BAD_PARAM;
inline constexpr std::int64_t kWorkspace = 512;  // bytes for the engine that needs a workspace

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

/// The position in memory of an element, counted row by row.
inline std::int64_t place_of(const Object& tensor, std::int64_t element) {
  std::int64_t place = 0;
  for (std::size_t d = sizes_of(tensor).size(); d-- > 0;) {
    place += element % sizes_of(tensor)[d] * tensor.at(CUDNN_ATTR_TENSOR_STRIDES).numbers[d];
    element /= sizes_of(tensor)[d];
  }
  return place;
}

/// The tensors of an operation. `second` is null for operations with one input.
struct Operands {
  Held first, second, result;
};
inline const Object& pointwise_of(const Object& operation) {
  return *operation.object(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
}
/// Refuses the operation unless it has exactly the attributes that its mode requires.
cudnnStatus_t read_operation(const Object& operation, Operands& operands);
/// Bytes of the results that operations hand on: a hostile library keeps them at the beginning of the workspace.
std::int64_t bytes_between(const Object& graph);

}  // namespace emulated_gpu::cudnn
