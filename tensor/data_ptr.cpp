#include <tandem/tensor/data_ptr.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::detail {

const void* dense_data(const char* call, const Tensor& tensor, std::optional<DType> expected) {
  const DType dtype = expected.value_or(tensor.dtype());
  check<DTypeError>(tensor.dtype() == dtype, "{}<{}>: the tensor holds {}; convert with .to(DType::{}) [TDM-E112]",
                    call, dtype, tensor.dtype(), dtype);
  check<ShapeError>(tensor.is_contiguous(),
                    "{}: the tensor {} with strides {} is not contiguous; call .contiguous() first", call,
                    tensor.shape(), tensor.strides());
  return tensor.raw().data();
}

void* dense_data_for_writing(const char* call, const Tensor& tensor, std::optional<DType> expected) {
  const void* first = dense_data(call, tensor, expected);
  check_writable(call, tensor.raw());
  tensor.raw().storage->bump_version();
  return const_cast<void*>(first);
}

}  // namespace tandem::inline v0::detail
